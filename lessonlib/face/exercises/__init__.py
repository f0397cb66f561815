"""Exercises: questions whose answers the library computes, and what is said to a guess."""

from lessonlib.face.exercises.asking import ask, check, hint, solution, standing
