"""A comparison as aligned text, and a progress line for terminals."""

from collections.abc import Callable, Mapping
from typing import Final, TextIO

from bireme.command_line import aligned
from bireme.simulator.comparison import Comparison, Line
from bireme.simulator.reports import standing, words

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
"""What to show where node pools grow and shrink."""
_RATIO: Final = "mean_jct_seconds"
_BAR_WIDTH: Final = 24
_SECONDS_BETWEEN: Final = 0.1


def table(comparison: Comparison, columns: Mapping[str, str] = COLUMNS) -> str:
    """A line per policy, and below what a reader must know.

    ``columns`` are the keys of metrics to show, with their headings.
    """
    names = words.short_names([line.policy for line in comparison.lines])
    header = ["policy", *columns.values(), "JCT ratio"]
    rows = [
        [name, *(_cell(line, key) for key in columns), _ratio(line)]
        for name, line in zip(names, comparison.lines, strict=True)
    ]
    notes = ["", f"JCT: job completion time; its ratio is that of the means, to {names[0]}'s."]
    if len(comparison.seeds) > 1:
        notes.append(f"Means over {len(comparison.seeds)} seeds; in brackets 95 % intervals.")
    notes += standing.caveats(comparison)
    return "\n".join([*aligned([header, *rows]), *notes]).rstrip() + "\n"


class Progress:
    """One line of ``stream`` that is written over and over; silent where it is no terminal."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._is_shown = stream.isatty()
        self._next = clock()

    def show(self, what: str, done: int, total: int) -> None:
        """``done`` of ``total`` of ``what``; not more often than an eye can follow."""
        if not self._is_shown or self._clock() < self._next:
            return
        self._next = self._clock() + _SECONDS_BETWEEN
        share = done / max(total, 1)
        bar = ("=" * round(share * _BAR_WIDTH)).ljust(_BAR_WIDTH)
        self._stream.write(f"\r\x1b[K[{bar}] {100 * share:3.0f} %  {what}")
        self._stream.flush()

    def clear(self) -> None:
        """Leave an empty line behind."""
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def _cell(line: Line, key: str) -> str:
    return words.worded(key)(line.means[key].mean) if key in line.means else "none"


def _ratio(line: Line) -> str:
    ratio = line.ratios.get(_RATIO)
    if ratio is None:
        return "none"
    if ratio.low is None or ratio.high is None or ratio.low == ratio.high:
        return words.ratio(ratio.mean)
    return f"{words.ratio(ratio.mean)} [{ratio.low:.2f}, {ratio.high:.2f}]"
