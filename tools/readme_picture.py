"""Draw docs/plane.png, the picture of the README: the plane of notebook 02, from the same function and the same data.

.venv/bin/python tools/readme_picture.py
"""

from pathlib import Path

from lessonlib import Deployment, Precision, load_accelerator, load_model, load_workload, workload_names
from lessonlib.face.figures.plane import plane
from lessonlib.face.figures.style import png_bytes

PICTURE = Path(__file__).parent.parent / "docs" / "plane.png"


def picture() -> bytes:
    """The PNG, the same bytes on each run with one matplotlib."""
    server = Deployment(load_model("llama-3.1-8b"), load_accelerator("h100-sxm"), Precision("bf16"))
    return png_bytes(plane(server, [load_workload(name) for name in workload_names()]))


def main() -> None:
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_bytes(picture())
    print(f"written docs/{PICTURE.name}")


if __name__ == "__main__":
    main()
