"""How fast jobs run in a simulation, and what goes wrong there.

:class:`Physics` is what the engine asks. Speed laws: :mod:`~.laws` (constant, measured at some
sizes), :mod:`~.optimus` (parameter servers), :mod:`~.goodput` (Pollux), :mod:`~.tables` (Gavel,
ElasticFlow). Loss and accuracy over steps: :mod:`bireme.core.speed`.
"""

from bireme.simulator.physics.model import MEASURED, NodeChange, Physics

__all__ = ["MEASURED", "NodeChange", "Physics"]
