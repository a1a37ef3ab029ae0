"""Exceptions of the simulator."""

from bireme.core.errors import BiremeError


class SimulationError(BiremeError):
    """A simulation cannot begin with what it was given, or a decision broke a promise."""


class TraceError(BiremeError, ValueError):
    """A workload cannot be read; the text names what is wrong, where, and the remedy."""
