"""What a case reports: samples, their comparison with a baseline, and whether an aim was reached.

Plain values that survive a trip through JSON, so that tables are drawn from files and a run of
one case renews only that case's.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

import msgspec

Of = Literal["value", "ratio"]


class Sample(msgspec.Struct, frozen=True):
    """Repeated measurements of one quantity, in the order they were taken."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """A sample of at least one value.

        Raises:
            ValueError: there is none, or one is no number.
        """
        taken = tuple(values)
        if not taken or any(math.isnan(value) for value in taken):
            raise ValueError(f"a sample needs numbers, these are {taken}")
        return cls(taken)

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    def percentile(self, percent: float) -> float:
        """The smallest value that at least ``percent`` % of all do not exceed."""
        ranked = sorted(self.values)
        return ranked[max(0, math.ceil(len(ranked) * percent / 100) - 1)]


class Aim(msgspec.Struct, frozen=True):
    """A bound on a row's own median or on its ratio to the baseline."""

    of: Of
    at_most: float | None = None
    at_least: float | None = None

    def is_reached(self, number: float) -> bool:
        """Whether ``number`` keeps the bound."""
        too_high = self.at_most is not None and number > self.at_most
        return not too_high and (self.at_least is None or number >= self.at_least)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity of Bireme, beside the same quantity of a baseline where there is one."""

    what: str
    unit: str
    bireme: Sample
    baseline: Sample | None = None
    aim: Aim | None = None

    def titled(self, what: str) -> "Row":
        """The same row under another name."""
        return msgspec.structs.replace(self, what=what)

    @property
    def ratio(self) -> float | None:
        """Bireme's median over the baseline's."""
        if self.baseline is None or self.baseline.median == 0:
            return None
        return self.bireme.median / self.baseline.median

    @property
    def is_reached(self) -> bool | None:
        """Whether the aim was reached; None without one."""
        if self.aim is None:
            return None
        number = self.ratio if self.aim.of == "ratio" else self.bireme.median
        if number is None:
            raise ValueError(f"{self.what}: an aim on the ratio needs a baseline")
        return self.aim.is_reached(number)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers that are no comparison, such as processor seconds by process."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one case found; ``baseline`` names what the rows are compared with."""

    rows: tuple[Row, ...]
    baseline: str = ""
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


def at_most(bound: float, of: Of = "value") -> Aim:
    """The number must not exceed ``bound``."""
    return Aim(of, at_most=bound)


def at_least(bound: float, of: Of = "value") -> Aim:
    """The number must reach ``bound``."""
    return Aim(of, at_least=bound)


@dataclass
class Pairs:
    """Samples of Bireme and of a baseline, collected in alternation."""

    bireme: dict[str, list[float]] = field(default_factory=dict)
    baseline: dict[str, list[float]] = field(default_factory=dict)

    def add(self, side: str, found: dict[str, float]) -> None:
        """One repetition on one side: quantity to number."""
        into = self.bireme if side == "bireme" else self.baseline
        for what, number in found.items():
            into.setdefault(what, []).append(number)

    def row(self, what: str, unit: str, aim: Aim | None = None) -> Row:
        """The row of one quantity."""
        baseline = self.baseline.get(what)
        return Row(
            what=what,
            unit=unit,
            bireme=Sample.of(self.bireme[what]),
            baseline=Sample.of(baseline) if baseline else None,
            aim=aim,
        )


def medians(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """Key by key, the median over dictionaries; a key that one lacks counts as zero there."""
    names = dict.fromkeys(name for one in found for name in one)
    return {name: statistics.median(one.get(name, 0.0) for one in found) for name in names}
