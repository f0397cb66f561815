"""Figures, each with its alt text and caption."""

from lessonlib.face.figures.batches import (
    break_even_lines,
    lever_curves,
    output_token_prices,
    savings_dots,
    throughput_by_batch,
)
from lessonlib.face.figures.cache import step_by_depth, step_over_answer
from lessonlib.face.figures.drawings import cache_triangle, memory_maps, one_batch, one_pass
from lessonlib.face.figures.drawings_of_servers import gpu_layouts, server_timeline
from lessonlib.face.figures.measured import fraction_by_step, measured_against_floor, measured_steps
from lessonlib.face.figures.plane import plane
from lessonlib.face.figures.requests import request_bars, roofline_figure, time_shares
from lessonlib.face.figures.style import show
from lessonlib.face.palette import CACHE, PREFILL, WEIGHTS
