"""What a reader sees: exercises here; figures, widgets and the report in rooms of their own."""

from lessonlib.face.exercises.asking import ask, check, hint, solution, standing
from lessonlib.face.sentences import what_survives
from lessonlib.face.tables import table
