"""What the page says: medians with 95 % intervals, ratios of paired repetitions, and the plots."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.machine import OTHERS
from benchmarks.peers.contest import COUNTED_SECONDS, Load, Measured
from benchmarks.peers.sides import Bireme, Side, Stock
from benchmarks.report import Aim, Result, Row, Sample, Table, at_least, at_most, medians
from benchmarks.simulations.figures import as_svg
from benchmarks.simulations.intervals import shown
from bireme.core.resources import FloatArray
from bireme_lab.simulator.comparison import Estimate
from bireme_lab.simulator.reports.terminal import number

_RESAMPLES: Final = 10_000
_BOUNDS: Final = (2.5, 97.5)


def median_of(values: Sequence[float]) -> Estimate:
    """Return the median with its 95 % bootstrap interval; no bounds of a single value."""
    taken = np.asarray(values)
    if len(taken) == 1:
        return Estimate(float(taken[0]))
    generator = np.random.default_rng(0)  # the same numbers have the same interval
    drawn = taken[generator.integers(0, len(taken), (_RESAMPLES, len(taken)))]
    low, high = np.percentile(np.median(drawn, axis=1), _BOUNDS)
    return Estimate(float(np.median(taken)), float(low), float(high))


@dataclass(frozen=True, slots=True)
class Quantity:
    """What is compared: its title in plots, what it is in full, its unit, and how to take it."""

    title: str
    what: str
    unit: str
    of: Callable[[Measured], float]
    logarithmic: bool = False

    def __str__(self) -> str:
        return f"{self.what}, {self.unit}"


RATE: Final = Quantity(
    "many gangs bound", "gangs bound per second", "gangs/s", lambda m: m.gangs_per_second
)
TOTAL: Final = Quantity("many gangs", "first create to last bind", "s", lambda m: m.many_seconds)
MEAN: Final = Quantity(
    "per gang, create to bound, mean",
    "from a gang's first create to its last bind, mean",
    "s",
    lambda m: m.mean_seconds,
)
P99: Final = Quantity("per gang", "the same, p99", "s", lambda m: m.p99_seconds)
SINCE_START: Final = Quantity(
    "per gang",
    "from the first create of all to a gang's last bind, mean",
    "s",
    lambda m: m.mean_since_start_seconds,
)
LARGE: Final = Quantity(
    "one large gang, create to bound",
    "first create to last bind of one large gang",
    "s",
    lambda m: m.large_seconds,
)
WORD: Final = Quantity(
    "no room: create to first word",
    "no room: create to the first word",
    "s",
    lambda m: statistics.median(m.word_seconds),
    logarithmic=True,
)
FREED: Final = Quantity(
    "freed room to next gang bound",
    "freed room: end of the last pod to the next gang's last bind",
    "s",
    lambda m: statistics.median(m.freed_seconds),
    logarithmic=True,
)
MEMORY: Final = Quantity(
    "memory of its programs",
    "memory of the scheduling programs after many gangs",
    "MiB",
    lambda m: m.memory,
)
QUANTITIES: Final = (RATE, TOTAL, MEAN, P99, SINCE_START, LARGE, WORD, FREED, MEMORY)
PLOTTED: Final = (RATE, MEAN, LARGE, WORD, FREED, MEMORY)


def result(found: Sequence[Measured], sides: Sequence[type[Side]], load: Load) -> Result:
    """Return rows, tables and figures of repetitions that all sides have."""
    by_side = {side.name: _of(side, found) for side in sides}
    return Result(
        baseline="the other",
        rows=_rows(by_side),
        tables=(
            _medians(by_side),
            _ratios(by_side),
            _by_program("Processor seconds by process, medians", by_side, lambda m: m.cpu_seconds),
            _by_program("Memory by program in MiB, medians", by_side, lambda m: m.memory_mib),
            _settings(sides, by_side),
            _words(by_side),
            _repetitions(by_side),
        ),
        notes=(_load(load), _ends(load)),
        figures={"peers.svg": _bars(by_side), "peers-course.svg": _course(by_side)},
    )


def _load(load: Load) -> str:
    return (
        f"One gang of {load.large} pods of one GPU, and after it {load.gangs} gangs of "
        f"{load.replicas} pods of {load.gpus} GPUs, on {load.nodes} fake nodes of 8 GPUs, in a "
        "fresh cluster for each repetition of each side, the sides in changing order. One load "
        "generator for all, with as many requests in flight as Bireme's operator. A group's object "
        "is created before its pods; stock and Kueue have none to create. Bireme's operator "
        "creates the pods itself, so its gangs are submitted earlier than those whose pods the "
        "generator creates: the time from the first create of all is taken alike for everyone."
    )


def _ends(load: Load) -> str:
    return (
        f"The {load.gangs} gangs fill the cluster to its last GPU. Then comes a gang for which "
        "there is no room: the first word is the first condition or reason that says so, on the "
        f"group or on one of its pods. Then the next gang waits, and one of the {load.gangs} ends: "
        "its pods are reported as succeeded. Processor time runs to "
        f"{COUNTED_SECONDS:g} s after the last bind."
    )


def _of(side: type[Side], found: Sequence[Measured]) -> list[Measured]:
    own = sorted((m for m in found if m.side == side.name), key=lambda m: m.repetition)
    if not own:
        raise ValueError(f"{side.name} was not measured")
    return own


def best_peer(by_side: dict[str, list[Measured]]) -> str:
    """Return the gang scheduler, other than Bireme, that binds the most gangs per second."""
    peers = [name for name in by_side if name not in (Stock.name, Bireme.name)]
    return max(peers, key=lambda n: statistics.median(m.gangs_per_second for m in by_side[n]))


def _rows(by_side: dict[str, list[Measured]]) -> tuple[Row, ...]:
    peer = best_peer(by_side)

    def row(quantity: Quantity, aim: Aim, against: str = "") -> Row:
        return Row(
            what=f"{quantity.what}, beside {against}" if against else quantity.what,
            unit=quantity.unit,
            bireme=Sample.of(map(quantity.of, by_side[Bireme.name])),
            baseline=Sample.of(map(quantity.of, by_side[against])) if against else None,
            aim=aim,
        )

    return (
        row(RATE, at_least(0.9, "ratio"), Stock.name),
        row(RATE, at_least(1.2, "ratio"), peer),
        row(MEAN, at_most(5)),
        row(P99, at_most(10)),
        row(LARGE, at_most(1.05, "ratio"), Stock.name),
        row(WORD, at_most(0.1)),
        row(FREED, at_most(0.5)),
        row(MEMORY, at_most(260)),
    )


def _medians(by_side: dict[str, list[Measured]]) -> Table:
    rows = [
        (str(q), *(shown(median_of([*map(q.of, own)]), number) for own in by_side.values()))
        for q in QUANTITIES
    ]
    title = "Side by side: medians and their 95 % intervals"
    return Table(title=title, columns=("", *by_side), rows=tuple(rows))


def _ratios(by_side: dict[str, list[Measured]]) -> Table:
    others = [name for name in by_side if name != Bireme.name]

    def cell(quantity: Quantity, other: str) -> str:
        pairs = zip(by_side[Bireme.name], by_side[other], strict=True)
        ratios = [quantity.of(one) / quantity.of(beside) for one, beside in pairs]
        return shown(median_of(ratios), lambda value: f"{value:.2f}")

    rows = [(q.what, *(cell(q, other) for other in others)) for q in QUANTITIES]
    title = "Bireme over each: medians of the ratios of repetitions, with 95 % intervals"
    return Table(title=title, columns=("", *others), rows=tuple(rows))


def _by_program(
    title: str, by_side: dict[str, list[Measured]], of: Callable[[Measured], dict[str, float]]
) -> Table:
    spent = {name: medians([of(one) for one in own]) for name, own in by_side.items()}
    programs = dict.fromkeys(program for one in spent.values() for program in one)
    rows: list[tuple[str | float, ...]] = [
        (program, *(one.get(program, "") for one in spent.values())) for program in programs
    ]
    sums = [sum(n for name, n in one.items() if name != OTHERS) for one in spent.values()]
    return Table(title=title, columns=("", *by_side), rows=(*rows, ("sum", *sums)))


def _settings(sides: Sequence[type[Side]], by_side: dict[str, list[Measured]]) -> Table:
    rows = [(side.name, by_side[side.name][-1].version, side.settings) for side in sides]
    return Table(title="Settings", columns=("", "version", "settings"), rows=tuple(rows))


def _words(by_side: dict[str, list[Measured]]) -> Table:
    rows = [(name, own[-1].words[-1]) for name, own in by_side.items()]
    return Table(title="The first word on a gang without room", columns=("", ""), rows=tuple(rows))


def _repetitions(by_side: dict[str, list[Measured]]) -> Table:
    rows: list[tuple[str | float, ...]] = [
        (name, str(one.repetition + 1), *(quantity.of(one) for quantity in QUANTITIES))
        for name, own in by_side.items()
        for one in own
    ]
    columns = ("", "", *map(str, QUANTITIES))
    return Table(title="Every repetition", columns=columns, rows=tuple(rows))


# --- plots --------------------------------------------------------------------------------------

_OWN: Final = "#c2410c"
_PEER: Final = "#64748b"
_LEAST: Final = 0.001
"""Seconds at which a logarithmic axis begins: the watch tells no shorter times apart."""


def _bars(by_side: dict[str, list[Measured]]) -> str:
    """Draw a bar of the median for each side, and a dot for each repetition."""
    figure = Figure(figsize=(10.5, 6.2), layout="constrained")
    names = list(by_side)
    for axes, quantity in zip(np.ravel(figure.subplots(2, 3)), PLOTTED, strict=True):
        for place, own in enumerate(by_side.values()):
            least = _LEAST if quantity.logarithmic else 0.0
            values = [max(quantity.of(one), least) for one in own]
            colour = _OWN if names[place] == Bireme.name else _PEER
            axes.barh(place, statistics.median(values), color=colour, alpha=0.55)
            axes.plot(values, [place] * len(values), "o", color=colour, markersize=3)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_title(f"{quantity.title}, {quantity.unit}", loc="left", fontsize=9)
        if quantity.logarithmic:
            axes.set_xscale("log")
            axes.set_xlim(_LEAST, 10 ** math.ceil(math.log10(axes.get_xlim()[1])))
        _plain(axes)
    return as_svg(figure)


def _course(by_side: dict[str, list[Measured]]) -> str:
    """Draw how many gangs are whole over time, and what the processors did meanwhile."""
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    course, spent = figure.subplots(1, 2)
    for name, own in by_side.items():
        times: FloatArray = np.median([sorted(one.since_start_seconds) for one in own], axis=0)
        style = {"color": _OWN, "linewidth": 2.2} if name == Bireme.name else {"linewidth": 1.3}
        course.plot(times, np.arange(1, len(times) + 1), label=name, **style)
    course.set_title("gangs whole, over seconds since the first create", loc="left", fontsize=9)
    course.legend(frameon=False, fontsize=8)
    _plain(course)
    shares = {name: _shares(own) for name, own in by_side.items()}
    base = np.zeros(len(shares))
    for part in next(iter(shares.values())):
        values = np.asarray([one[part] for one in shares.values()])
        spent.barh(list(shares), values, left=base, label=part)
        base += values
    spent.invert_yaxis()
    spent.set_title("processor seconds of the same load", loc="left", fontsize=9)
    spent.legend(
        frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.08)
    )
    _plain(spent)
    return as_svg(figure)


def _shares(own: Sequence[Measured]) -> dict[str, float]:
    """Return processor seconds of the API server, of etcd, of the side's programs, and the rest."""
    spent = medians([one.cpu_seconds for one in own])
    scheduling = sum(spent.get(name, 0.0) for name in own[-1].memory_mib)
    parts = {
        "API server": spent["kube-apiserver"],
        "etcd": spent["etcd"],
        "scheduling programs": scheduling,
    }
    rest = sum(n for name, n in spent.items() if name != OTHERS) - sum(parts.values())
    return {**parts, "others of the cluster, load generator": rest}


def _plain(axes: Axes) -> None:
    axes.grid(axis="x", color="#eeeeee")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
