"""The arithmetic of decode-heavy requests: work, then time, then a request, then what follows from it."""

__version__ = "0.1.0"
