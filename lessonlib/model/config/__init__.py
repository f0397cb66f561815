"""A published config.json read as a model: the families as data, and the reader that follows them."""
