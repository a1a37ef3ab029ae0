"""Exceptions of forecasting.

BiremeError
├── SeriesError      a series has values or a shape that it cannot have
└── FitError         a forecaster cannot be fitted to a series, or cannot forecast from there
    └── TooShort     it has too few values for that
"""

from bireme.core.errors import BiremeError


class SeriesError(BiremeError, ValueError):
    """A series has values or a shape that it cannot have; the text says which and the remedy."""


class FitError(BiremeError):
    """A forecaster cannot be fitted to a series, or cannot forecast; the text says why."""


class TooShort(FitError):  # noqa: N818  # what is wrong, in its shortest form
    """A series has too few values; the text says how many there are and how many it takes."""
