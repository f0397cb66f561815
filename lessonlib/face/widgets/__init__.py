"""Controls in a notebook: explorers of the arithmetic, and choosers of a learner's files."""

from lessonlib.face.widgets.choosers import choose_model, choose_traffic, in_words, serve
from lessonlib.face.widgets.explorer import (
    explore_batch,
    explore_growth,
    explore_kinds,
    explore_levers,
    explore_plane,
    explore_prefill,
    explore_price,
    explore_request,
    explore_timeline,
)
from lessonlib.face.widgets.report_form import report_form
