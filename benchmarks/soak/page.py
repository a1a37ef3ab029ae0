"""What the page says: growth by program with its interval, and everything over time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.report import Result, Row, Table, at_most
from benchmarks.simulations.figures import as_svg
from benchmarks.soak.course import REST_SECONDS, SAMPLE_SECONDS, Seen, Word
from benchmarks.soak.load import GPUS, NODES
from benchmarks.soak.samples import ClusterSample, ProgramSample
from benchmarks.soak.slopes import Slope, slope_of
from bireme_lab.simulator.reports.terminal import number

OWN: Final = ("operator-a", "extender", "kube-scheduler")
"""Programs of Bireme; the others are Kubernetes', for comparison."""
MAX_MIB_PER_DAY: Final = 100.0
"""A tenth of what the chart's limits give each program: ten days without a restart."""
MAX_DESCRIPTORS_PER_DAY: Final = 50.0
"""A twentieth of the 1024 that a process has by default."""
MAX_SECONDS_PER_DAY: Final = 0.1
"""Of the time until a job's first word, which a person does not see."""
WARM_UP_SHARE: Final = 0.25
"""Share of a program's life in which its caches fill, which no slope is drawn through."""
WINDOW_SECONDS: Final = 120.0
_SHARE_OF_LIFE: Final = 20
"""A life has at least so many windows, however short it is."""


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a program, after its warm-up."""

    program: str
    samples: tuple[ProgramSample, ...]

    @property
    def seconds(self) -> float:
        return self.samples[-1].seconds - self.samples[0].seconds

    def slope(self, of: Callable[[ProgramSample], float]) -> Slope | None:
        window = min(WINDOW_SECONDS, self.seconds / _SHARE_OF_LIFE)
        times = [sample.seconds for sample in self.samples]
        values = [of(sample) for sample in self.samples]
        return slope_of(times, values, window_seconds=max(window, SAMPLE_SECONDS))


def longest_lives(samples: Sequence[ProgramSample]) -> list[Life]:
    """Return the longest life of each program without its first quarter."""
    lives: dict[str, dict[int, list[ProgramSample]]] = {}
    for sample in samples:
        lives.setdefault(sample.program, {}).setdefault(sample.pid, []).append(sample)
    longest = [max(by_pid.values(), key=len) for by_pid in lives.values()]
    return [
        Life(life[0].program, tuple(life[int(len(life) * WARM_UP_SHARE) :])) for life in longest
    ]


def result(
    seen: Seen, programs: Sequence[ProgramSample], cluster: Sequence[ClusterSample]
) -> Result:
    lives = longest_lives(programs)
    return Result(
        rows=tuple(_rows(seen, lives)),
        tables=(_growth(lives), _held(cluster), _times(seen, cluster), _faults(seen)),
        notes=tuple(_notes(seen, lives)),
        figures={
            "soak-programs.svg": _drawn_programs(seen, programs),
            "soak-cluster.svg": _drawn_cluster(seen, cluster),
        },
    )


def _rows(seen: Seen, lives: Iterable[Life]) -> Iterator[Row]:
    for life in lives:
        if life.program not in OWN:
            continue
        for what, unit, bound, of in (
            ("resident memory", "MiB", MAX_MIB_PER_DAY, _resident),
            ("open descriptors", "", MAX_DESCRIPTORS_PER_DAY, _descriptors),
        ):
            slope = life.slope(of)
            if slope is not None:
                words = f"{life.program}: growth of {what} in a day, upper end"
                yield Row.alone(words, unit, slope.high, aim=at_most(bound))
    lag = _lag(seen)
    if lag is not None:
        words = "creation to the first word: growth in a day, upper end"
        yield Row.alone(words, "s", lag.high, aim=at_most(MAX_SECONDS_PER_DAY))
    words = "last fault to rest of every gang"
    yield Row.alone(words, "s", seen.rest_seconds, aim=at_most(REST_SECONDS))
    yield Row.alone("promises broken", "", len(seen.broken), aim=at_most(0))
    yield Row.alone("left over at the end", "", len(seen.left), aim=at_most(0))
    yield Row.alone("errors of the run itself", "", len(seen.errors), aim=at_most(0))


def _lag(seen: Seen) -> Slope | None:
    """Return the growth of the time to a job's first word, without the parts with kills."""
    words = _between_kills(seen, seen.first_words)
    window = max(WINDOW_SECONDS, seen.asked_seconds / _SHARE_OF_LIFE)
    return slope_of([w.began for w in words], [w.took for w in words], window_seconds=window)


def _between_kills(seen: Seen, words: Iterable[Word]) -> list[Word]:
    kills = [fault for fault in seen.faults if fault.is_kill]
    middle = seen.asked_seconds / 2
    began = max((fault.ended for fault in kills if fault.ended < middle), default=0.0)
    ended = min((fault.began for fault in kills if fault.began > middle), default=float("inf"))
    return sorted((w for w in words if began < w.began < ended), key=lambda w: w.began)


def _growth(lives: Iterable[Life]) -> Table:
    rows = []
    for life in lives:
        last = life.samples[-1]
        spent = last.processor_seconds - life.samples[0].processor_seconds
        rows.append(
            (
                life.program,
                f"{life.seconds / 60:.0f} min",
                last.resident_mib,
                _shown(life.slope(_resident)),
                str(last.descriptors),
                _shown(life.slope(_descriptors)),
                _shown(life.slope(_threads)),
                f"{100 * spent / max(life.seconds, 1.0):.1f} %",
            )
        )
    columns = ("program", "life", "MiB", "in a day", "descriptors", "in a day", "threads in a day")
    title = "Growth in a day, with the 95 % interval"
    return Table(title=title, columns=(*columns, "of a core"), rows=tuple(rows))


def _held(cluster: Sequence[ClusterSample]) -> Table:
    """Compare what the cluster held in the first and in the last third of the run."""
    third = max(1, len(cluster) // 3)
    parts = (cluster[:third], cluster[third:-third], cluster[-third:])
    rows: list[tuple[str | float, ...]] = []
    for name, of in _COUNTS.items():
        medians = [_median(of(sample) for sample in part) for part in parts]
        rows.append((name, *(number(value) for value in medians)))
    columns = ("", "first third", "second", "last")
    return Table(title="What the cluster held, medians", columns=columns, rows=tuple(rows))


_COUNTS: Final[dict[str, Callable[[ClusterSample], float]]] = {
    "TrainingJobs": lambda s: s.jobs,
    "PodGroups": lambda s: s.groups,
    "pods": lambda s: s.pods,
    "Services": lambda s: s.services,
    "events": lambda s: s.events,
    "etcd, file, MiB": lambda s: s.etcd_mib,
    "etcd, in use, MiB": lambda s: s.etcd_used_mib,
}


def _median(values: Iterable[float]) -> float:
    known = [value for value in values if value >= 0]
    return float(np.median(known)) if known else float("nan")


def _times(seen: Seen, cluster: Sequence[ClusterSample]) -> Table:
    series: dict[str, list[float]] = {
        "job created to its first word": _took(seen.first_words),
        "the same between the kills": _took(_between_kills(seen, seen.first_words)),
        "pod created to its node": _took(seen.bindings),
        "that between the kills": _took(_between_kills(seen, seen.bindings)),
        "turn of the operator, mean of 10 s": [s.turn_seconds for s in cluster],
        "cycle of the operator, mean of 10 s": [s.cycle_seconds for s in cluster],
        "age of the leader's last turn": [s.turn_age_seconds for s in cluster],
        "extender: last word of its quietest watch": [s.heard_seconds for s in cluster],
    }
    rows = []
    for name, values in series.items():
        known = np.asarray([value for value in values if value >= 0])
        if len(known):
            shares = np.percentile(known, (50, 95, 99, 100))
            rows.append((name, str(len(known)), *(number(float(each)) for each in shares)))
    columns = ("seconds", "samples", "p50", "p95", "p99", "most")
    return Table(title="How Bireme kept up", columns=columns, rows=tuple(rows))


def _took(words: Iterable[Word]) -> list[float]:
    return [word.took for word in words]


def _faults(seen: Seen) -> Table:
    counted: dict[str, list[float]] = {}
    what = {fault.name: fault.what for fault in seen.faults}
    for fault in seen.faults:
        counted.setdefault(fault.name, []).append(fault.ended - fault.began)
    rows = tuple(
        (name, what[name], str(len(took)), f"{np.median(took):.0f} s")
        for name, took in counted.items()
    )
    columns = ("fault", "", "times", "took")
    return Table(title="Faults", columns=columns, rows=rows)


def _notes(seen: Seen, lives: Iterable[Life]) -> Iterator[str]:
    kinds = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in seen.submitted.items())
    yield (
        f"{seen.asked_seconds / 60:.0f} minutes on {NODES} fake nodes of {GPUS} GPUs: "
        f"{sum(seen.submitted.values())} submissions of four tenants ({kinds}), "
        f"{seen.refused} more refused while the API server was away, {len(seen.faults)} faults, "
        f"{seen.revisions} revisions judged."
    )
    yield (
        "Programs are killed in the first and in the last tenth of the time. Slopes are drawn "
        "through the longest life of each program, which is between them, without its first "
        f"{WARM_UP_SHARE:.0%}: the median of all slopes between medians of "
        f"{WINDOW_SECONDS / 60:g} minutes (Theil and Sen), with the 95 % interval. Nothing leaks "
        f"where the upper end is at most {MAX_MIB_PER_DAY:g} MiB or "
        f"{MAX_DESCRIPTORS_PER_DAY:g} descriptors a day."
    )
    short = [life.program for life in lives if life.program in OWN and life.seconds < 1800]
    if short:
        yield f"Lives of {', '.join(short)} are too short for a word about a day."
    for title, found in (
        ("Not at rest in time", seen.restless if seen.rest_seconds > REST_SECONDS else ()),
        ("Broken promises", seen.broken),
        ("Left over", seen.left),
        ("Errors", seen.errors),
    ):
        if found:
            yield f"{title}:\n\n```\n" + "\n".join(found) + "\n```"


def _shown(slope: Slope | None) -> str:
    if slope is None:
        return "too short"
    return f"{slope.per_day:+.1f} [{slope.low:+.1f}, {slope.high:+.1f}]"


def _resident(sample: ProgramSample) -> float:
    return sample.resident_mib


def _descriptors(sample: ProgramSample) -> float:
    return sample.descriptors


def _threads(sample: ProgramSample) -> float:
    return sample.threads


# --- drawings -------------------------------------------------------------------------------


def _drawn_programs(seen: Seen, programs: Sequence[ProgramSample]) -> str:
    figure = Figure(figsize=(10.5, 6.6), layout="constrained")
    memory, descriptors = figure.subplots(2, 1, sharex=True)
    by_program: dict[str, list[ProgramSample]] = {}
    for sample in programs:
        by_program.setdefault(sample.program, []).append(sample)
    for axes, title, of in (
        (memory, "resident memory, MiB", _resident),
        (descriptors, "open descriptors", _descriptors),
    ):
        for name, own in by_program.items():
            width = 1.6 if name in OWN else 0.8
            xs, ys = [s.seconds / 60 for s in own], [of(s) for s in own]
            axes.plot(xs, ys, label=name, linewidth=width)
        _framed(axes, title, seen)
    memory.legend(frameon=False, fontsize=8, ncols=4)
    descriptors.set_xlabel("minutes", fontsize=8)
    return as_svg(figure)


def _drawn_cluster(seen: Seen, cluster: Sequence[ClusterSample]) -> str:
    figure = Figure(figsize=(10.5, 8.8), layout="constrained")
    words, turns, objects, etcd = figure.subplots(4, 1, sharex=True)
    minutes = [s.seconds / 60 for s in cluster]
    for name, found in (("first word", seen.first_words), ("pod bound", seen.bindings)):
        for share, style in ((50, "-"), (100, ":")):
            xs, ys = _over_time(found, share)
            label = f"{name}, {'median' if share == 50 else 'longest'}"
            words.plot(xs, ys, style, linewidth=1.0, label=label)
    words.set_yscale("log")
    _framed(words, "seconds from creation", seen)
    for name, series in (
        ("turn", [s.turn_seconds for s in cluster]),
        ("cycle", [s.cycle_seconds for s in cluster]),
    ):
        turns.plot(minutes, _known(series), label=name, linewidth=1.0)
    _framed(turns, "turn and cycle of the operator, seconds", seen)
    for name in ("TrainingJobs", "pods", "events"):
        objects.plot(minutes, _known(_COUNTS[name](s) for s in cluster), label=name, linewidth=1.0)
    _framed(objects, "objects", seen)
    for name in ("etcd, file, MiB", "etcd, in use, MiB"):
        etcd.plot(minutes, _known(_COUNTS[name](s) for s in cluster), label=name, linewidth=1.0)
    _framed(etcd, "etcd", seen)
    for axes in (words, turns, objects, etcd):
        axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=4)
    etcd.set_xlabel("minutes", fontsize=8)
    return as_svg(figure)


def _over_time(words: Iterable[Word], share: int) -> tuple[list[float], list[float]]:
    """Return minutes, and a percentile of what took how long in each window of time."""
    by_window: dict[int, list[float]] = {}
    for word in words:
        by_window.setdefault(int(word.began // WINDOW_SECONDS), []).append(max(word.took, 1e-3))
    windows = sorted(by_window)
    minutes = [(each + 0.5) * WINDOW_SECONDS / 60 for each in windows]
    return minutes, [float(np.percentile(by_window[each], share)) for each in windows]


def _known(values: Iterable[float]) -> list[float]:
    return [value if value >= 0 else float("nan") for value in values]


def _framed(axes: Axes, title: str, seen: Seen) -> None:
    for fault in seen.faults:
        colour = "#d62728" if fault.is_kill else "#bbbbbb"
        axes.axvline(fault.began / 60, color=colour, linewidth=0.5, zorder=0)
    axes.set_title(f"{title}; grey: faults, red: kills", loc="left", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.set_xlim(left=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
