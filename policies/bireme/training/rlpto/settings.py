"""The experiments of RLPTO: how many nodes and servers there are, and which tasks come when.

A cluster of parameter servers runs one task per server; the other nodes are workers. The paper's
12 nodes make 3 servers and 10 workers, as its rows of FS, (3, 3, 4), and FCFS, 10, say; 12 less 3
would be 9. Its 16 nodes make 4 servers and 12 workers. All nodes are containers of one machine, so
that with more of them each is slower.

Lu et al., "RLPTO", IEEE TPDS 2023, section VII; tables II, III and V.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import Final

from bireme.core.errors import SettingError
from bireme.simulator.traces.papers import RLPTO_PRIORITIES
from bireme.training.rlpto.curves import MOST_WORKERS

BETAS: Final = (1e-4, 2e-4, 3e-4, 5e-4, 1e-3)
"""Least gains of accuracy per iteration, from 0 to 1, that are judged (tables II and III)."""
MIX_BETA: Final = 3e-4
"""That of the priority mixes (section VII.B.4)."""
MOST_SERVERS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One experiment.

    Attributes:
        servers: Parameter servers; as many tasks run at a time.
        nodes: Workers of all tasks together.
        slowdown: How much longer a step takes than where there are few nodes.
        priorities: Of each task, 1 to 5, in the order of ``RLPTO_IMAGES``; without any, all have 1
            and come in an order that the seed draws.
        spread_seconds: Tasks arrive at times drawn from the first so many seconds.
        request_seconds: How often the owner of a waiting task may ask for another priority;
            whether it asks, and for more or less, is drawn.
    """

    servers: int = 3
    nodes: int = 10
    slowdown: float = 1.0
    priorities: tuple[int, ...] = ()
    spread_seconds: float = 0.0
    request_seconds: float = inf

    def __post_init__(self) -> None:
        if not 1 <= self.servers <= min(self.nodes, MOST_SERVERS) or self.nodes > MOST_WORKERS:
            raise SettingError(
                f"servers is {self.servers}, nodes {self.nodes}; give at least a node for each of "
                f"1 to {MOST_SERVERS} servers, and at most {MOST_WORKERS} nodes"
            )


_TWELVE: Final = Setting()
SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {
        "table-2": _TWELVE,
        # 1.12 lies between what the rows of FS (1.18) and of FCFS (1.06) say.
        "table-3": Setting(servers=4, nodes=12, slowdown=1.12),
        **{
            f"mix-{number}": replace(_TWELVE, priorities=mix)
            for number, mix in enumerate(RLPTO_PRIORITIES, 1)
        },
        "arrivals": replace(
            _TWELVE, priorities=RLPTO_PRIORITIES[3], spread_seconds=3600.0, request_seconds=600.0
        ),
    }
)
"""By name. ``arrivals`` is not in the paper: there tasks are interrupted and change queues."""
