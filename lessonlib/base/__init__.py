"""What every room needs: errors and the checks that raise them, numbers in words, text for tables."""

from lessonlib.base.errors import (
    DoesNotFitError,
    InvalidInputError,
    LessonError,
    UnknownNameError,
    UnsupportedModelError,
)
from lessonlib.base.files import GivenFile, Upload, write_new, write_together
from lessonlib.base.text import html_table, markdown_table, one_line, plain_html, plain_markdown
from lessonlib.base.units import format_bytes, format_flops, format_percent, format_quantity, format_seconds
