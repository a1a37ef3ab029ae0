"""How fast jobs run in a simulation, and what goes wrong there.

:class:`Physics` is what the engine asks. Speed laws: :mod:`~.laws` (constant, measured at some
sizes), :mod:`~.optimus` (parameter servers), :mod:`~.goodput` (Pollux), :mod:`~.tables` (Gavel,
ElasticFlow). Loss and accuracy over steps: :mod:`bireme.core.curves`.
"""

from bireme.simulator.physics.failures import NodeChange
from bireme.simulator.physics.model import MEASURED, Physics

__all__ = ["MEASURED", "NodeChange", "Physics"]
