"""What a colour means, the same in every figure and explorer: Okabe and Ito's, told apart by all eyes."""

PREFILL = "#D55E00"  # vermilion
DECODE = "#56B4E9"  # sky blue
WEIGHTS = "#0072B2"  # blue
CACHE = "#009E73"  # bluish green
OVERHEAD = "#7F7F7F"  # grey
MEASURED = "#000000"
OTHER = "#CC79A7"  # reddish purple
BOUNDARY = "#222222"  # always dashed
INK = "#222222"
QUIET = "#5A5A5A"
GRID = "#DDDDDD"
CACHE_INK = "#00664B"  # CACHE, PREFILL and OTHER, dark enough to be read as letters
PREFILL_INK = "#A84A00"
OTHER_INK = "#8F3F6B"
INKS = {CACHE: CACHE_INK, PREFILL: PREFILL_INK, OTHER: OTHER_INK, OVERHEAD: QUIET}  # the letters of a colour
