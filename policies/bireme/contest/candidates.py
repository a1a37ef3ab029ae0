"""Candidates: policies by name, and the rules with the constants that are tried for them.

A candidate is written ``orderer/placer/sizer``, each a name of the registry, with its parameters if
it has any: ``tiresias-las?threshold_device_seconds=30000``. It may also be ``checkpoint:FOLDER``,
which stands for all parts of that checkpoint. Omitted parts are the defaults of
:class:`~bireme.core.settings.SchedulingSettings`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Final

from bireme import registry
from bireme.core.errors import SettingError
from bireme.core.policy import PARTS, PartName, Policy
from bireme.core.settings import SchedulingSettings
from bireme.onnx.checkpoints import read_card
from bireme.rl.components import parts_of

_DEFAULTS: Final = SchedulingSettings()
_KNOWING: Final = ", run times known"


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy by the names of its parts.

    Attributes:
        knows_run_times: It gets true run times, which no operator has: the ceiling of a table.
    """

    orderer: str = _DEFAULTS.orderer
    placer: str = _DEFAULTS.placer
    sizer: str = _DEFAULTS.sizer
    knows_run_times: bool = False

    @classmethod
    def read(cls, text: str, general: SchedulingSettings = _DEFAULTS) -> "Contender":
        """Return the candidate written ``orderer/placer/sizer``; the inverse of :attr:`name`.

        Omitted parts are those of ``general``.

        Raises:
            SettingError: ``text`` has more than three parts, or an empty one.
            CheckpointError: the folder has no checkpoint.
        """
        named = text.removesuffix(_KNOWING)
        parts = _parts_of(named)
        if len(parts) > 3 or "" in parts:
            raise SettingError(
                f"{text!r} is no policy; write orderer, orderer/placer or orderer/placer/sizer"
            )
        whole = parts_at(named)
        by_part = dict.fromkeys(whole, named) or dict(zip(PARTS, parts, strict=False))
        complete = {part: by_part.get(part, getattr(general, part)) for part in PARTS}
        return cls(**complete, knows_run_times=named != text)

    @property
    def name(self) -> str:
        """``orderer/placer/sizer`` without trailing defaults, or the checkpoint."""
        parts = [self.orderer, self.placer, self.sizer]
        if not self.sizer:
            parts = parts[:1] if self.placer == _DEFAULTS.placer else parts[:2]
        parts = list(dict.fromkeys(parts)) if registry.CHECKPOINT in self.orderer else parts
        return "/".join(parts) + (_KNOWING if self.knows_run_times else "")

    def policy(self, settings: SchedulingSettings = _DEFAULTS) -> tuple[Policy, SchedulingSettings]:
        """Return the policy, made anew, and ``settings`` with its names.

        Raises:
            SettingError: a name or a parameter is unknown, or a value is out of range.
        """
        named = self.settings(settings)
        return registry.make_policy(named), named

    def settings(self, general: SchedulingSettings) -> SchedulingSettings:
        """Return ``general`` with the names of the parts."""
        return replace(general, orderer=self.orderer, placer=self.placer, sizer=self.sizer)


def _parts_of(text: str) -> list[str]:
    """Return the parts of ``text`` between slashes; a checkpoint's folder extends to the end."""
    head, has_checkpoint, folder = f"/{text}".partition(f"/{registry.CHECKPOINT}")
    parts = head.split("/")[1:]
    return [*parts, registry.CHECKPOINT + folder] if has_checkpoint else parts


def parts_at(text: str) -> Collection[PartName]:
    """Return the parts that ``checkpoint:FOLDER`` stands for; empty for any other ``text``.

    Raises CheckpointError: the folder has no checkpoint.
    """
    if not text.startswith(registry.CHECKPOINT):
        return ()
    card, _ = read_card(Path(text.removeprefix(registry.CHECKPOINT).partition("?")[0]))
    return parts_of(card)


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
