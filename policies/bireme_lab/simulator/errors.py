"""Exceptions of the simulator."""

from bireme.core.errors import BiremeError


class SimulationError(BiremeError):
    """A simulation cannot begin with its arguments, or a decision broke a promise."""


class TraceError(BiremeError, ValueError):
    """A workload cannot be read; the text names the fault, its place and the remedy."""
