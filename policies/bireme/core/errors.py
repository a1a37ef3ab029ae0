"""Exceptions of the library. "Does not fit" is never one: that is a ``Hold`` with a ``Reason``.

BiremeError
├── SettingError     a setting has a value it cannot have
└── SnapshotError    a snapshot contradicts itself (a programming error at the edge)
"""


class BiremeError(Exception):
    """Root of everything Bireme raises on purpose."""


class SettingError(BiremeError, ValueError):
    """A setting has a value it cannot have; the text names setting, value and remedy."""


class SnapshotError(BiremeError):
    """A snapshot contradicts itself, for example arrays of different lengths."""
