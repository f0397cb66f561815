"""Settings that hold for every test."""

from hypothesis import settings

# The same examples on every machine and in every run, and no clock: a slow machine is no failure.
settings.register_profile("lessonlib", deadline=None, derandomize=True)
settings.load_profile("lessonlib")
