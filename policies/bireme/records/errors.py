"""Exceptions of records.

BiremeError
└── RecordError    a record cannot be written or read; the text names file, line and remedy
"""

from bireme.core.errors import BiremeError


class RecordError(BiremeError, ValueError):
    """A record cannot be written or read; the text names what is wrong, where, and the remedy."""
