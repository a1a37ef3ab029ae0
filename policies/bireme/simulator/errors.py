"""Exceptions of the simulator.

BiremeError
├── SimulationError   a simulation cannot begin, or a decision broke a promise while it ran
└── TraceError        a workload cannot be read; the text names file, line, field, value, remedy
"""

from bireme.core.errors import BiremeError


class SimulationError(BiremeError):
    """A simulation cannot begin with what it was given, or a decision broke a promise."""


class TraceError(BiremeError, ValueError):
    """A workload cannot be read; the text names what is wrong, where, and the remedy."""
