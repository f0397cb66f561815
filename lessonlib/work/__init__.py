"""FLOPs and bytes of one forward pass of a model given as plain numbers. No hardware, no time."""

from lessonlib.work.passes import Passes, Work
from lessonlib.work.sizes import LayerKind, ModelSizes, RoutedExperts, sizes_of
