"""How a learner's log of requests becomes token counts: its text, its rows, its columns, and what they mean."""
