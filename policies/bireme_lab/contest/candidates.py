"""Rules that policies are compared with, and the constants that are tried for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from bireme.contender import Contender
from bireme.core.settings import SchedulingSettings

_DEFAULTS: Final = SchedulingSettings()


@dataclass(frozen=True, slots=True)
class TunedRule:
    """A rule, and the values of its constants to try.

    Attributes:
        orderer: Name of the rule.
        grid: Values by parameter; None stands for the default value and omits the parameter.
        placers, sizers: Parts to combine it with.
    """

    orderer: str
    grid: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    placers: Sequence[str] = (_DEFAULTS.placer,)
    sizers: Sequence[str] = (_DEFAULTS.sizer,)

    def candidates(self) -> list[Contender]:
        """Return one candidate for every combination, the first values first."""
        candidates = []
        for values in product(*self.grid.values()):
            pairs = zip(self.grid, values, strict=True)
            query = "&".join(f"{name}={value}" for name, value in pairs if value is not None)
            query = query.replace("e+", "e")  # a plus sign would be read as a space
            orderer = f"{self.orderer}?{query}" if query else self.orderer
            candidates += [Contender(orderer, *rest) for rest in product(self.placers, self.sizers)]
        return candidates


RULES: Final = (
    TunedRule(
        "combined-priority", {"service_threshold": (0,), "parallelism_weight": (None, 0.0, 1.0)}
    ),
    TunedRule("fifo"),
    TunedRule("fair-share"),
    TunedRule("sjf"),
    TunedRule("smallest-first"),
    TunedRule("srsf"),
    TunedRule("srtf"),
    TunedRule("tetris"),
    TunedRule("tiresias-gittins", {"quantum_device_seconds": (None, 32, 512, 2048, 8192)}),
    TunedRule(
        "tiresias-las",
        {
            "threshold_device_seconds": (None, 1000, 10_000, 30_000, 100_000),
            "promote_knob": (None, 8),
        },
    ),
)
"""Orderers that decide fast, for gangs of fixed size, with the constants that matter.

They include the paper's order, on which the default builds, but not the default itself, which is
judged too."""
DEFAULT_RULE: Final = TunedRule(
    "combined-priority",
    {
        "service_threshold": (None, 900, 14_400),
        "parallelism_weight": (None, 0.0),
        "service_preemption_delay_seconds": (None, 0, 900),
    },
)
"""The default order, with the constants that another cluster may want otherwise."""
PLACERS: Final = ("packing", "packing?least_speedup=1000", "best-fit", "fgd")
"""Placers that are combined with an orderer."""
ORACLES: Final = (Contender("srtf", knows_run_times=True), Contender("srsf", knows_run_times=True))
"""Policies with true run times, as the ceiling."""
