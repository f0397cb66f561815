"""What notebook 00 says in words of the two requests, each word earned by the library."""

from lessonlib.face.exercises.book.common import CHAT
from lessonlib.face.exercises.book.notebook_00 import chat_answers

WORDS = {8: "eight"}

HELD = {
    "Chat's prompt is eight times as long as its answer": lambda: (
        f"Chat's prompt is {WORDS[CHAT.prompt // CHAT.output]} times as long as its answer"
    ),
    "accept 15 per cent more or less": lambda: f"accept {100 * chat_answers.tolerance:.0f} per cent more or less",
}
