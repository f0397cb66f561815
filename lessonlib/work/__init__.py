"""FLOPs and bytes of one forward pass of a model given as plain numbers. No hardware, no time."""

from lessonlib.work.passes import span_sum
from lessonlib.work.sizes import FoldedModel, LayerKind, RoutedExperts, fold

__all__ = [
    "FoldedModel",
    "LayerKind",
    "RoutedExperts",
    "fold",
    "span_sum",
]
