"""The few functions that the equations need, of a float or of an array: each looks at its arguments.

A float takes Python's own function, which is many times faster than NumPy's; NaN in an array stays NaN.
"""

import math
from typing import Any

import numpy as np
from numpy import ndarray


def minimum(one: Any, other: Any) -> Any:
    """The smaller of two, cell by cell."""
    if type(one) is ndarray or type(other) is ndarray:
        return np.minimum(one, other)
    return one if one <= other else other


def maximum(one: Any, other: Any) -> Any:
    """The larger of two, cell by cell."""
    if type(one) is ndarray or type(other) is ndarray:
        return np.maximum(one, other)
    return one if one >= other else other


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` where the condition holds, `no` elsewhere."""
    if type(condition) is ndarray:
        return np.where(condition, yes, no)
    return yes if condition else no


def ratio(over: Any, under: Any) -> Any:
    """The quotient; NaN where `under` is 0."""
    if not isinstance(over, np.ndarray) and not isinstance(under, np.ndarray):
        return over / under if under else math.nan
    return np.asarray(over) / np.where(under == 0, np.nan, under)


def floor(value: Any) -> Any:
    """The largest whole number that is not above the value."""
    return np.floor(value) if type(value) is ndarray else math.floor(value)


def expm1(value: Any) -> Any:
    """exp(value) - 1, exact near 0."""
    return np.expm1(value) if type(value) is ndarray else math.expm1(value)
