"""Physics by name: ``plain``, ``measured``, and either with other numbers.

``measured?node_mtbf_seconds=400000&per_neighbour=1`` is what was measured elsewhere, but for a node
that fails more often and gangs that do not disturb each other; the options are the fields of
:class:`~bireme.simulator.physics.Physics` that are numbers.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from math import isfinite
from typing import Any, Final

from bireme.core.errors import SettingError
from bireme.simulator.options import known_name, read_options
from bireme.simulator.physics.model import MEASURED, Physics

PLAIN: Final = "plain"
PHYSICS: Final[Mapping[str, Physics]] = {PLAIN: Physics(), "measured": MEASURED}


def read_physics(text: str) -> Physics:
    """The physics that ``text`` names.

    Raises:
        SettingError: a name that is none of :data:`PHYSICS`, an option that is none, or a value
            that makes no sense.
    """
    name, _, query = text.partition("?")
    physics = PHYSICS[known_name("physics", name, PHYSICS, SettingError)]
    numbers = {name: value for name, value in asdict(physics).items() if isinstance(value, float)}
    given: dict[str, Any] = read_options(query, numbers, SettingError)
    return replace(physics, **given)


def to_json(physics: Physics) -> dict[str, object]:
    """Its fields by name, those beneath ``fluctuation`` too; null for what is off."""
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in asdict(physics).items()
    }
