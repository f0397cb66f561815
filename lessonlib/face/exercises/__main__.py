"""An instructor's table of what a class has answered.

python -m lessonlib.face.exercises FOLDER     the progress files (*.json) in it and in its folders
python -m lessonlib.face.exercises --export   every exercise with its answer, as JSON, for a page of one's own
"""

import json
import sys
from pathlib import Path

from lessonlib.base.errors import LessonError
from lessonlib.face.exercises.asking import all_exercises, exported
from lessonlib.face.exercises.progress import class_table


def main(arguments: list[str]) -> int:
    """Run a command; 1 when there is nothing to tell."""
    if arguments == ["--export"]:
        print(json.dumps([exported(key) for key in all_exercises()], indent=1))
        return 0
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    files = sorted(Path(arguments[0]).rglob("*.json"))
    if not files:
        print(
            f"{arguments[0]!r} has no progress file (*.json); expected a folder with those of a class.", file=sys.stderr
        )
        return 1
    try:
        print(class_table(files, all_exercises()))
    except LessonError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
