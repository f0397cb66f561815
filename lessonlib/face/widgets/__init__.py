"""Controls in a notebook: explorers of the arithmetic, and choosers of a learner's files."""

from lessonlib.face.widgets.choosers import choose_model, choose_traffic, in_words, serve
from lessonlib.face.widgets.explorers import (
    batch_numbers,
    explore_batch,
    explore_growth,
    explore_prefill,
    explore_price,
    growth_numbers,
    prefill_numbers,
    price_numbers,
)
from lessonlib.face.widgets.report_form import report_form
from lessonlib.face.widgets.request_explorer import explore_request, numbers
