"""Exceptions of checkpoints and networks.

BiremeError
├── CheckpointError    a checkpoint cannot be used; raised when it is loaded
└── AnswerError        a network gave no valid answer; the rules answer instead
"""

from bireme.core.errors import BiremeError


class CheckpointError(BiremeError, ValueError):
    """A checkpoint cannot be used; the text names the file, its fault and the remedy."""


class AnswerError(BiremeError):
    """A network answered too late, or without a finite number per row; the text names the fault."""
