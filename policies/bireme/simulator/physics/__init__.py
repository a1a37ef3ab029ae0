"""How fast jobs run in a simulation, and what disturbs them.

:class:`Physics` is the model that the simulation uses. Speed laws: :mod:`~.laws` (constant,
measured at some sizes, parameter servers), :mod:`~.goodput` (Pollux), :mod:`~.tables` (Gavel,
ElasticFlow). Loss and accuracy over steps: :mod:`bireme.core.speed`.
"""

from bireme.simulator.physics.model import MEASURED, NodeChange, Physics

__all__ = ["MEASURED", "NodeChange", "Physics"]
