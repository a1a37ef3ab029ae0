"""The settings of TapFinger's worlds: pools, arrivals, what arrives, and how decisions are made.

Numbers are those of the paper (Li et al., sections 5.1 to 5.4) where the authors' published
configurations agree. They differ in one: the figures on several jobs per step were made with 3
arrivals per step, not 2.

In single mode a pool starts at most one job per step, and changing a running job's allocation costs
half a step's progress; in multi mode it starts as many as it likes, and changes are free.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

from bireme.core.errors import SettingError
from bireme.training.tapfinger.laws import Law, pointer, synthetic
from bireme.training.tapfinger.measurements import doubling, measured

WINDOW: Final = 10
"""How many waiting jobs a pool can choose from."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One kind of world.

    Attributes:
        capacity: CPUs and GPUs of each pool.
        law: How fast jobs are.
        arrivals_per_step: Mean of a Poisson distribution.
        jobs: Per episode.
        is_multi: Whether a pool may start several jobs in a step.
    """

    capacity: tuple[tuple[int, int], ...]
    law: Law
    arrivals_per_step: float
    jobs: int
    is_multi: bool

    @property
    def change_share(self) -> float:
        """What is left of a step's progress in which a running job's allocation changed."""
        return 1.0 if self.is_multi else 0.5


_Made: TypeAlias = Callable[[Path | None], Law]
_SIXTEEN: Final = (16, 16)
_LARGE: Final = (32, 16)
_UNEVEN: Final = tuple((size, size) for size in (4, 8, 12, 16, 24, 32))


def _synthetic(_: Path | None) -> Law:
    return synthetic()


def _noisy(_: Path | None) -> Law:
    return synthetic(noise=0.1)


def _pointer(_: Path | None) -> Law:
    return pointer()


_KINDS: Final[Mapping[str, tuple[tuple[tuple[int, int], ...], _Made, float, int, bool]]] = {
    "single-3": ((_SIXTEEN,) * 3, _synthetic, 2.0, 192, False),
    "single-6": ((_SIXTEEN,) * 6, _synthetic, 4.0, 384, False),
    "single-3-noisy": ((_SIXTEEN,) * 3, _noisy, 2.0, 192, False),
    "single-6-noisy": ((_SIXTEEN,) * 6, _noisy, 4.0, 384, False),
    "single-6-rate-3": ((_SIXTEEN,) * 6, _synthetic, 3.0, 384, False),
    "single-6-rate-2": ((_SIXTEEN,) * 6, _synthetic, 2.0, 384, False),
    "multi-3": ((_SIXTEEN,) * 3, _synthetic, 3.0, 192, True),
    "hetero-6": (_UNEVEN, _synthetic, 6.0, 384, True),
    "pointer": ((_SIXTEEN,) * 3, _pointer, 3.0, 192, True),
    "trace-3": ((_LARGE,) * 3, doubling, 1.5, 1000, False),
    "trace-6": ((_LARGE,) * 6, doubling, 3.0, 2000, False),
    "measured-3": ((_LARGE,) * 3, measured, 1.5, 1000, False),
}

SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "single-3": "3 equal pools, one start per pool and step, 2 arrivals per step",
        "single-6": "6 equal pools, one start per pool and step, 4 arrivals per step",
        "single-3-noisy": "single-3 with the noise of the paper's figures",
        "single-6-noisy": "single-6 with the noise of the paper's figures",
        "single-6-rate-3": "single-6 with 3 arrivals per step",
        "single-6-rate-2": "single-6 with 2 arrivals per step",
        "multi-3": "3 equal pools, any number of starts, 3 arrivals per step",
        "hetero-6": "6 pools of 4 to 32 GPUs, any number of starts, 6 arrivals per step",
        "pointer": "3 equal pools, any number of starts; jobs of 1 or 10 steps",
        "trace-3": "3 pools, jobs measured on a machine as the authors' program runs them",
        "trace-6": "6 pools, the same",
        "measured-3": "3 pools, the same jobs in the time that they really took",
    }
)
"""What they are; those of the trace need the folder of the published measurements."""


def make_setting(name: str, data: Path | None = None, jobs: int | None = None) -> Setting:
    """The setting called ``name``.

    Args:
        data: The folder with the published measurements; trace settings need it.
        jobs: Per episode, instead of the setting's own number.

    Raises:
        SettingError: there is no such setting, or it needs ``data``.
    """
    if name not in _KINDS:
        raise SettingError(f"setting is {name!r}; write one of {', '.join(_KINDS)}")
    capacity, law, rate, own_jobs, is_multi = _KINDS[name]
    if jobs is not None and jobs < 1:
        raise SettingError(f"jobs is {jobs}; write 1 or more")
    return Setting(capacity, law(data), rate, jobs or own_jobs, is_multi)
