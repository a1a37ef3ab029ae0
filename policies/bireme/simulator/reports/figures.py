"""The numbers of a comparison as HTML: bars of the main ones, and a table of all."""

from collections.abc import Sequence
from html import escape
from typing import Final

from bireme.simulator.bootstrap import Estimate
from bireme.simulator.comparison import Comparison, Line
from bireme.simulator.metrics import KEYS, STATISTICS
from bireme.simulator.reports import standing, words

MAIN: Final = {
    "mean_wait_seconds": "Wait, mean",
    "p99_wait_seconds": "Wait, 99th percentile",
    "mean_jct_seconds": "Completion time, mean",
    "p99_jct_seconds": "Completion time, 99th percentile",
    "mean_slowdown": "Slowdown, mean",
    "p99_finish_time_fairness": "Finish-time fairness, 99th percentile",
    "gpu_utilisation": "GPUs in use",
    "mean_fragmentation": "Free GPUs on partly used nodes",
    "preemptions": "Preemptions",
}
_GROUPS: Final[dict[str, dict[str, str]]] = {
    "Jobs": {
        "jobs": "submitted",
        "finished": "finished",
        "unfinished": "started, not finished",
        "never_started": "never started",
        "wait_bound_violations": "past their wait bound",
    },
    **{
        title: {f"{statistic}_{name}": label for statistic, label in STATISTICS.items()}
        for title, name in (
            ("Wait until the first start", "wait_seconds"),
            ("Completion time", "jct_seconds"),
            ("Slowdown", "slowdown"),
            ("Finish-time fairness", "finish_time_fairness"),
        )
    },
    "Cluster": {
        "makespan_seconds": "makespan",
        "gpu_utilisation": "GPUs in use",
        "mean_fragmentation": "free GPUs on partly used nodes",
    },
    "Decisions": {
        "preemptions": "preemptions",
        "resizes": "resizes",
        "backfills": "backfills",
        "reservations": "reservations",
        "reservations_honoured": "reservations honoured",
        "fallbacks": "answers of the default rules instead",
        "decision_seconds": "time spent deciding",
    },
}


def bars(comparison: Comparison, names: Sequence[str]) -> str:
    """A card per main number with a bar per policy; numbers that are 0 for all are left out."""
    return "".join(
        _card(comparison, names, key, title)
        for key, title in MAIN.items()
        if any(line.means[key].mean for line in comparison.lines if key in line.means)
    )


def _card(comparison: Comparison, names: Sequence[str], key: str, title: str) -> str:
    shown = [line.means[key] for line in comparison.lines if key in line.means]
    most = max(max(one.mean, one.high or 0.0) for one in shown)
    lead = standing.best(comparison, key)
    better = "higher is better" if key in standing.HIGHER_IS_BETTER else ""
    rows = [
        _bar(number, name, line, key, most, line.policy in lead)
        for number, (name, line) in enumerate(zip(names, comparison.lines, strict=True))
    ]
    return (
        f'<div class="card"><h3 title="{escape(KEYS[key])}">{escape(title)}'
        f"<span>{better}</span></h3>{''.join(rows)}</div>"
    )


def _bar(number: int, name: str, line: Line, key: str, most: float, is_best: bool) -> str:
    label = f'<span class="name" title="{escape(line.policy)}">{escape(name)}</span>'
    classes = f"bar p{number}{' best' if is_best else ''}"
    mean = line.means.get(key)
    if mean is None:
        return f'<div class="{classes}">{label}<span class="value">none</span></div>'
    bar = f'<i style="width:{100 * mean.mean / most:.1f}%"></i>' if mean.mean else ""
    against = words.ratio(line.ratios[key].mean) if key in line.ratios and number else ""
    return (
        f'<div class="{classes}">{label}<span class="value">{words.worded(key)(mean.mean)}</span>'
        f'<span class="ratio">{against}</span>'
        f'<span class="track">{bar}{_whisker(mean, most)}</span></div>'
    )


def _whisker(mean: Estimate, most: float) -> str:
    if mean.low is None or mean.high is None or mean.low == mean.high:
        return ""
    left, width = 100 * mean.low / most, 100 * (mean.high - mean.low) / most
    return f'<b style="left:{left:.1f}%;width:{width:.1f}%"></b>'


def table(comparison: Comparison, names: Sequence[str]) -> str:
    """All numbers, a row per key and a column per policy."""
    heads = [
        f'<th scope="col" class="p{number}" title="{escape(line.policy)}">{escape(name)}</th>'
        for number, (name, line) in enumerate(zip(names, comparison.lines, strict=True))
    ]
    bodies = []
    for title, keys in _GROUPS.items():
        head = f'<tr><th scope="rowgroup" colspan="{len(names) + 1}">{escape(title)}</th></tr>'
        rows = [_row(comparison, key, label) for key, label in keys.items()]
        bodies.append(f"<tbody>{head}{''.join(rows)}</tbody>")
    head = f'<thead><tr><th scope="col"></th>{"".join(heads)}</tr></thead>'
    return f"<table>{head}{''.join(bodies)}</table>"


def _row(comparison: Comparison, key: str, label: str) -> str:
    lead = standing.best(comparison, key)
    cells = []
    for number, line in enumerate(comparison.lines):
        classes = f"p{number}{' best' if line.policy in lead else ''}"
        cells.append(f'<td class="{classes}">{_cell(line.means.get(key), key)}</td>')
    says = escape(f"{key}: {KEYS[key]}")
    return (
        f'<tr><th scope="row"><abbr title="{says}">{escape(label)}</abbr></th>{"".join(cells)}</tr>'
    )


def _cell(mean: Estimate | None, key: str) -> str:
    if mean is None:
        return '<span class="soft">none</span>'
    word = words.worded(key)
    return f"{word(mean.mean)}{interval(mean, key)}"


def interval(mean: Estimate, key: str) -> str:
    """The interval in small print; empty when it has no width."""
    if mean.low is None or mean.high is None or mean.low == mean.high:
        return ""
    word = words.worded(key)
    return f"<small>{word(mean.low)} to {word(mean.high)}</small>"
