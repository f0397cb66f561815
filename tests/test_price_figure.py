"""The figure of notebook 09: curves end at the memory limits, labels say their ends, and none is cut off."""

import itertools

from test_lever_figures import laid_out

from lessonlib.face.exercises.book.common import CHAT, REASONING, server
from lessonlib.face.figures.batches import output_token_prices
from lessonlib.policy.batching import output_token_in_prompt_tokens
from lessonlib.policy.full_server import memory_batch


def test_the_price_of_an_output_token_by_batch():
    series = {}
    for label, request in (("chat", CHAT), ("reasoning", REASONING)):
        batches = range(1, memory_batch(server(), request) + 1)
        series[label] = (batches, [output_token_in_prompt_tokens(server(), request, batch) for batch in batches])
    figure = laid_out(output_token_prices(series, "A title"))
    (axes,) = figure.axes
    words = [text.get_text() for text in axes.texts]
    assert f"chat: memory is full at {memory_batch(server(), CHAT)}\n3.9 prompt tokens" in words
    assert f"reasoning: memory is full at {memory_batch(server(), REASONING)}\n22 prompt tokens" in words
    assert "alone: 308 to 322" in words
    drawn = [line.get_xydata()[-1] for line in axes.lines if len(line.get_xdata()) > 2]
    assert [tuple(end) for end in drawn] == [(batches[-1], prices[-1]) for batches, prices in series.values()]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
