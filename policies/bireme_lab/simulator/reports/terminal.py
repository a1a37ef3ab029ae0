"""A comparison as aligned text, numbers as people read them, and a progress line."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TextIO

from bireme.tables import align_columns
from bireme_lab.simulator.comparison import Comparison, PolicyResult
from bireme_lab.simulator.metrics import KEYS

_UNITS: Final = (
    (172_800.0, 86_400.0, "d"),
    (6_000.0, 3_600.0, "h"),
    (100.0, 60.0, "min"),
    (0.995, 1.0, "s"),
    (0.0, 0.001, "ms"),
)
"""Minimum seconds, seconds per unit, unit."""
_LARGE: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e5, "k"))


def duration(seconds: float) -> str:
    """Return ``40 ms``, ``75 s``, ``12 min``, ``3.4 h``, ``2.1 d``."""
    if not seconds:
        return "0 s"
    per, unit = next((per, unit) for minimum, per, unit in _UNITS if abs(seconds) >= minimum)
    return f"{digits(seconds / per)} {unit}"


def digits(value: float) -> str:
    """Return two or three significant digits: ``0.07``, ``3.4``, ``128``, ``2.5 M``."""
    size = abs(value)
    for minimum, letter in _LARGE:
        if size >= minimum:
            return f"{value / (1e3 if letter == 'k' else minimum):.3g} {letter}"
    if size >= 9.95 or not size:
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 0.995 else f"{value:.2f}"


def ratio(value: float) -> str:
    """Return a ratio as ``0.71x``."""
    return f"{value:.2f}x" if value < 9.95 else f"{digits(value)}x"


def share(value: float) -> str:
    """Return a share as ``87.2 %``."""
    return f"{100 * value:.1f} %"


def count(value: float) -> str:
    """Return ``64,483``; a small mean of counts over seeds keeps one decimal."""
    return f"{value:,.0f}" if value == round(value) or value >= 1000 else f"{value:.1f}"


def formatter_of(key: str) -> Callable[[float], str]:
    """Return the function that writes the values of a metric key."""
    if key.endswith("_seconds"):
        return duration
    if key in ("gpu_utilisation", "mean_fragmentation"):
        return share
    return digits if key.endswith(("slowdown", "fairness")) else count


def plural(number: int, noun: str) -> str:
    """Return ``1 seed``, ``3 seeds``, ``2 policies``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("y") else f"{number:,} {noun}s"


def short_names(policies: Sequence[str]) -> list[str]:
    """Return ``policies`` without their common parts (orderer/placer/sizer)."""
    parts = [policy.split("/") for policy in policies]
    if len(policies) < 2 or len({len(one) for one in parts}) > 1:
        return list(policies)
    differing = [index for index in range(len(parts[0])) if len({one[index] for one in parts}) > 1]
    return ["/".join(one[index] for index in differing) or "/".join(one) for one in parts]


HIGHER_IS_BETTER: Final = frozenset({"finished", "gpu_utilisation"})
LOWER_IS_BETTER: Final = frozenset(
    {"unfinished", "never_started", "makespan_seconds", "mean_fragmentation"}
    | {"wait_bound_violations", "node_hours", "short_hours"}
    | {key for key in KEYS if key.endswith(("wait_seconds", "jct_seconds", "slowdown"))}
    | {key for key in KEYS if key.endswith("finish_time_fairness")}
)


def best(comparison: Comparison, key: str) -> frozenset[str]:
    """Return the policies with the best mean of ``key``; empty if all means are equal."""
    means = {line.policy: line.means[key].mean for line in comparison.results if key in line.means}
    if key not in HIGHER_IS_BETTER | LOWER_IS_BETTER or len(set(means.values())) < 2:
        return frozenset()
    lead = (max if key in HIGHER_IS_BETTER else min)(means.values())
    return frozenset(policy for policy, mean in means.items() if mean == lead)


def caveats(comparison: Comparison) -> Sequence[str]:
    """Return sentences about the limits of the numbers."""
    sentences = []
    finished = {line.means["finished"].mean for line in comparison.results}
    if len(finished) > 1:
        sentences.append(
            "The policies did not finish the same number of jobs: waits, completion times, "
            "slowdowns and fairness are over those that each did start or finish."
        )
    elif any(line.means["finished"].mean < line.means["jobs"].mean for line in comparison.results):
        sentences.append("Some jobs did not finish; they count in no completion time.")
    for line in comparison.results:
        if line.means["fallbacks"].mean:
            cycles = count(line.means["fallbacks"].mean)
            sentences.append(
                f"{line.policy} gave no valid answer in {cycles} cycles; there the default rules "
                "decided, so the numbers are not all its own."
            )
    if comparison.is_settled:
        sentences.append(
            f"All {len(comparison.seeds)} seeds gave the same: nothing here depends on chance, "
            "so the intervals are empty."
        )
    elif 1 < len(comparison.seeds) < 5:
        sentences.append(
            f"Intervals over only {len(comparison.seeds)} seeds are narrower than they should be."
        )
    return sentences


COLUMNS: Final = {
    "finished": "finished",
    "mean_wait_seconds": "wait mean",
    "p99_wait_seconds": "wait p99",
    "mean_jct_seconds": "JCT mean",
    "p99_jct_seconds": "JCT p99",
    "mean_slowdown": "slowdown",
    "p99_finish_time_fairness": "rho p99",
    "gpu_utilisation": "GPUs in use",
    "preemptions": "preempted",
}
POOL_COLUMNS: Final = {
    "finished": "finished",
    "mean_wait_seconds": "wait mean",
    "p90_wait_seconds": "wait p90",
    "p99_wait_seconds": "wait p99",
    "mean_jct_seconds": "JCT mean",
    "node_hours": "node-hours",
    "short_hours": "hours short",
    "gpu_utilisation": "GPUs in use",
}
"""Columns where node pools grow and shrink."""
_RATIO: Final = "mean_jct_seconds"
_BAR_WIDTH: Final = 24
_SECONDS_BETWEEN: Final = 0.1


def table(comparison: Comparison, columns: Mapping[str, str] = COLUMNS) -> str:
    """Return a line per policy, and notes below; ``columns`` are keys of metrics and headings."""
    names = short_names([line.policy for line in comparison.results])
    header = ["policy", *columns.values(), "JCT ratio"]
    rows = [
        [
            name,
            *(formatter_of(k)(line.means[k].mean) if k in line.means else "none" for k in columns),
            _ratio(line),
        ]
        for name, line in zip(names, comparison.results, strict=True)
    ]
    notes = ["", f"JCT: job completion time; its ratio is that of the means, to {names[0]}'s."]
    if len(comparison.seeds) > 1:
        notes.append(f"Means over {len(comparison.seeds)} seeds; in brackets 95 % intervals.")
    notes += caveats(comparison)
    return "\n".join([*align_columns([header, *rows]), *notes]).rstrip() + "\n"


class ProgressLine:
    """One line of ``stream`` that is overwritten again and again; silent outside a terminal."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._is_shown = stream.isatty()
        self._next = clock()

    def show(self, what: str, done: int, total: int) -> None:
        """Show ``done`` of ``total`` of ``what``, at most ten times a second."""
        if not self._is_shown or self._clock() < self._next:
            return
        self._next = self._clock() + _SECONDS_BETWEEN
        share = done / max(total, 1)  # total may be 0
        bar = ("=" * round(share * _BAR_WIDTH)).ljust(_BAR_WIDTH)
        self._stream.write(f"\r\x1b[K[{bar}] {100 * share:3.0f} %  {what}")
        self._stream.flush()

    def clear(self) -> None:
        """Leave an empty line behind."""
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def _ratio(line: PolicyResult) -> str:
    estimate = line.ratios.get(_RATIO)
    if estimate is None:
        return "none"
    if estimate.interval is None:
        return ratio(estimate.mean)
    low, high = estimate.interval
    return f"{ratio(estimate.mean)} [{low:.2f}, {high:.2f}]"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str | float]]) -> list[str]:
    """Return the lines of a Markdown table; numbers as :func:`number` writes them."""
    texts = ([cell if isinstance(cell, str) else number(cell) for cell in row] for row in rows)
    return [_line(cells) for cells in (columns, ["---"] * len(columns), *texts)]


def number(value: float) -> str:
    """Return three significant digits, without an exponent."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    decimals = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{decimals}f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
