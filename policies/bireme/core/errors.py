"""Exceptions of the library. "Does not fit" is never one: that is a ``Hold`` with a ``Reason``.

BiremeError
├── HistoryError     a history of run times cannot be read
├── SettingError     a setting has a value it cannot have
└── SnapshotError    a snapshot contradicts itself (a programming error at the edge)
"""


class BiremeError(Exception):
    """Root of everything Bireme raises on purpose."""


class HistoryError(BiremeError, ValueError):
    """A history of run times has bounds or contents it cannot have; the text names them."""


class SettingError(BiremeError, ValueError):
    """A setting has a value it cannot have; the text names setting, value and remedy."""


class SnapshotError(BiremeError):
    """A snapshot contradicts itself, for example arrays of different lengths."""
