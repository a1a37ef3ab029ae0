"""One self-contained HTML page about a comparison, without scripts or external files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Final

from bireme_lab.simulator.comparison import Comparison, Estimate, PolicyResult
from bireme_lab.simulator.metrics import KEYS, STATISTICS
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.reports import svg, terminal

# The eight colours of the policies differ with every common kind of colour blindness, also by their
# lightness. Their contrast with the card is at least 3 to 1 in both modes (WCAG 2.2, 1.4.11). From
# the ninth policy on lines are dashed.

LIGHT: Final = {
    "paper": "#f6f5f1",
    "card": "#ffffff",
    "ink": "#1c2026",
    "soft": "#59616d",
    "edge": "#dfddd6",
    "grid": "#e9e7e1",
    "idle": "#efede8",
    "cut": "#c2181f",
}
DARK: Final = {
    "paper": "#14171b",
    "card": "#1c2026",
    "ink": "#e9ebee",
    "soft": "#a3abb7",
    "edge": "#333a43",
    "grid": "#2b3138",
    "idle": "#272c33",
    "cut": "#ff6b6b",
}
LIGHT_POLICIES: Final = (
    *("#0b5fa5", "#c4480a", "#0b7d5a", "#8a3fb0"),
    *("#8a6a00", "#c22f6d", "#2b8caf", "#5c636d"),
)
DARK_POLICIES: Final = (
    *("#62aef2", "#ff9356", "#41cf9d", "#c795ea"),
    *("#e2c044", "#ff86b3", "#83d8f2", "#b4bac3"),
)
COLOURS: Final = len(LIGHT_POLICIES)
_STYLE: Final = Path(__file__).with_name("page.css")


def css(policies: int) -> str:
    """Return the style sheet of a page with ``policies`` policies."""
    light, dark = _colours(LIGHT, LIGHT_POLICIES), _colours(DARK, DARK_POLICIES)
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f"{_STYLE.read_text(encoding='utf-8')}{_policies(policies)}"
    )


def _colours(named: dict[str, str], policies: tuple[str, ...]) -> str:
    numbered = {f"c{number}": colour for number, colour in enumerate(policies)}
    return "".join(f"--{name}:{colour};" for name, colour in (named | numbered).items())


def _policies(policies: int) -> str:
    rules = []
    for number in range(policies):
        rules.append(f".p{number}{{--own:var(--c{number % COLOURS})}}")
        if number >= COLOURS:
            rules.append(f".line.p{number}{{stroke-dasharray:7 4}}")
        # A legend entry under the pointer fades the other policies.
        rules.append(f".curves:has(li.p{number}:hover) .line:not(.p{number}){{opacity:.12}}")
        # The checked tab shows its panel, without a script.
        rules.append(
            f"#tab{number}:checked~.panels>:nth-child({number + 1}){{display:grid}}"
            f"#tab{number}:checked~.tabs label:nth-child({number + 1})"
            "{background:var(--own);border-color:var(--own);color:var(--card)}"
            f"#tab{number}:focus-visible~.tabs label:nth-child({number + 1})"
            "{outline:2px solid var(--ink);outline-offset:2px}"
        )
    rules += [f".g{number}{{fill:var(--c{number})}}" for number in range(COLOURS)]
    return "".join(rules)


_MAIN: Final = {
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


def _bars(comparison: Comparison, names: Sequence[str]) -> str:
    """Draw a card per main number with a bar per policy, without numbers that are 0 for all."""
    return "".join(
        _card(comparison, names, key, title)
        for key, title in _MAIN.items()
        if any(line.means[key].mean for line in comparison.results if key in line.means)
    )


def _card(comparison: Comparison, names: Sequence[str], key: str, title: str) -> str:
    means = [line.means[key] for line in comparison.results if key in line.means]
    # Bars and intervals must fit.
    scale = max(max(one.mean, one.high or 0.0) for one in means)
    lead = terminal.best(comparison, key)
    better = "higher is better" if key in terminal.HIGHER_IS_BETTER else ""
    rows = [
        _bar(number, name, line, key, scale, line.policy in lead)
        for number, (name, line) in enumerate(zip(names, comparison.results, strict=True))
    ]
    return (
        f'<div class="card"><h3 title="{escape(KEYS[key])}">{escape(title)}'
        f"<span>{better}</span></h3>{''.join(rows)}</div>"
    )


def _bar(number: int, name: str, line: PolicyResult, key: str, scale: float, is_best: bool) -> str:
    label = f'<span class="name" title="{escape(line.policy)}">{escape(name)}</span>'
    classes = f"bar p{number}{' best' if is_best else ''}"
    mean = line.means.get(key)
    if mean is None:
        return f'<div class="{classes}">{label}<span class="value">none</span></div>'
    bar = f'<i style="width:{100 * mean.mean / scale:.1f}%"></i>' if mean.mean else ""
    if mean.interval is not None:
        low, high = (100 * value / scale for value in mean.interval)
        bar += f'<b style="left:{low:.1f}%;width:{high - low:.1f}%"></b>'
    against = terminal.ratio(line.ratios[key].mean) if key in line.ratios and number else ""
    return (
        f'<div class="{classes}">{label}'
        f'<span class="value">{terminal.formatter_of(key)(mean.mean)}</span>'
        f'<span class="ratio">{against}</span>'
        f'<span class="track">{bar}</span></div>'
    )


def _table(comparison: Comparison, names: Sequence[str]) -> str:
    """Write all numbers, a row per key and a column per policy."""
    heads = [
        f'<th scope="col" class="p{number}" title="{escape(line.policy)}">{escape(name)}</th>'
        for number, (name, line) in enumerate(zip(names, comparison.results, strict=True))
    ]
    bodies = []
    for title, keys in _GROUPS.items():
        head = f'<tr><th scope="rowgroup" colspan="{len(names) + 1}">{escape(title)}</th></tr>'
        rows = [_row(comparison, key, label) for key, label in keys.items()]
        bodies.append(f"<tbody>{head}{''.join(rows)}</tbody>")
    head = f'<thead><tr><th scope="col"></th>{"".join(heads)}</tr></thead>'
    return f"<table>{head}{''.join(bodies)}</table>"


def _row(comparison: Comparison, key: str, label: str) -> str:
    lead = terminal.best(comparison, key)
    cells = []
    for number, line in enumerate(comparison.results):
        classes = f"p{number}{' best' if line.policy in lead else ''}"
        cells.append(f'<td class="{classes}">{_cell(line.means.get(key), key)}</td>')
    says = escape(f"{key}: {KEYS[key]}")
    return (
        f'<tr><th scope="row"><abbr title="{says}">{escape(label)}</abbr></th>{"".join(cells)}</tr>'
    )


def _cell(mean: Estimate | None, key: str) -> str:
    if mean is None:
        return '<span class="soft">none</span>'
    word = terminal.formatter_of(key)
    if mean.interval is None:
        return word(mean.mean)
    low, high = mean.interval
    return f"{word(mean.mean)}<small>{word(low)} to {word(high)}</small>"


@dataclass(frozen=True, slots=True)
class PageContent:
    """The subject of the page.

    Attributes:
        outcomes: One per policy, in the order of the comparison, all of its first seed.
        gpus_by_node: In the cluster's order.
        command: The command line that writes the same page again.
        treatments: Number of trace rows by treatment.
    """

    comparison: Comparison
    outcomes: Sequence[Outcome]
    gpus_by_node: Mapping[str, int]
    command: str = ""
    treatments: Mapping[str, int] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Return the policy names without their common parts."""
        return terminal.short_names([line.policy for line in self.comparison.results])


def render(report: PageContent) -> str:
    """Return the page as text."""
    title = escape(report.comparison.trace)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}: scheduling policies compared</title>"
        f"<style>{css(len(report.outcomes))}</style></head><body><main>"
        f"{_opening(report)}{_numbers(report)}{_over_time(report)}{_map(report)}{_closing(report)}"
        "</main></body></html>\n"
    )


def _section(title: str, note: str, body: str, classes: str = "") -> str:
    opened = f'<section class="{classes}">' if classes else "<section>"
    return f'{opened}<h2>{title}</h2><p class="note">{note}</p>{body}</section>'


def _opening(report: PageContent) -> str:
    comparison, outcome = report.comparison, report.outcomes[0]
    size = (
        f"{terminal.plural(len(outcome.jobs), 'job')} on "
        f"{terminal.plural(len(report.gpus_by_node), 'node')} with "
        f"{terminal.plural(outcome.total_gpus, 'GPU')}, "
        f"{terminal.plural(len(comparison.results), 'policy')}, "
        f"{terminal.plural(len(comparison.seeds), 'seed')}"
    )
    notes = [f'<p class="caveat">{escape(text)}</p>' for text in terminal.caveats(comparison)]
    return (
        '<header><p class="kicker">Bireme simulation</p>'
        f"<h1>{escape(comparison.trace)}</h1>"
        f'<p class="lede">{size}. {escape(_finding(report))}</p>{"".join(notes)}</header>'
    )


def _finding(report: PageContent) -> str:
    """Name the policy with the lowest mean completion time, and its ratio to the first."""
    lines = dict(zip(report.names, report.comparison.results, strict=True))
    key = "mean_jct_seconds"
    rows = {name: line for name, line in lines.items() if key in line.means}
    if not rows:
        return "No job finished."
    name = min(rows, key=lambda one: rows[one].means[key].mean)
    line, first = rows[name], report.names[0]
    text = f"Lowest mean completion time: {name}, {terminal.duration(line.means[key].mean)}"
    if name == first or key not in line.ratios:
        return f"{text}."
    return f"{text}, {terminal.ratio(line.ratios[key].mean)} that of {first}."


def _numbers(report: PageContent) -> str:
    comparison, names = report.comparison, report.names
    seeds = comparison.seeds
    note = f"Seed {seeds[0]}, and the ratio to {escape(names[0])}."
    if len(seeds) > 1:
        note = (
            f"Means over {len(seeds)} seeds, and their ratio to {escape(names[0])}. "
            "Thin lines and small print: 95 % intervals."
        )
    best = (
        "The best of a row is bold and tinted, where less or more is better. Point at the name of "
        "a row for its meaning and its key in the JSON."
    )
    cards = f'<div class="cards">{_bars(comparison, names)}</div>'
    table = f'<div class="scroll">{_table(comparison, names)}</div>'
    return _section("At a glance", note, cards) + _section("All numbers", best, table)


def _over_time(report: PageContent) -> str:
    outcomes, names = report.outcomes, report.names
    entries = (f'<li class="p{number}">{escape(name)}</li>' for number, name in enumerate(names))
    legend = f'<ul class="legend">{"".join(entries)}</ul>'
    note = (
        f"Seed {outcomes[0].seed}; time since the first submission, means over {svg.BINS} equal "
        "stretches."
    )
    shares = "Share of jobs that needed at most so long; further left and higher is better."
    usage = f'<div class="card">{svg.usage(outcomes, names)}</div>'
    waiting = f'{legend}<div class="card">{svg.waiting(outcomes)}</div>'
    curves = f'{legend}<div class="cards">{svg.distributions(outcomes)}</div>'
    return (
        f"{_section('GPUs in use', note, usage) if outcomes[0].total_gpus else ''}"
        f"{_section('Gangs waiting', note, waiting, 'curves')}"
        f"{_section('How long jobs took', shares, curves, 'curves')}"
    )


def _map(report: PageContent) -> str:
    if not any(report.gpus_by_node.values()):
        return ""
    window = svg.choose(report.outcomes, report.gpus_by_node)
    # Radio buttons and the style's :checked make tabs without a script.
    tabs, inputs, panels = [], [], []
    for number, (outcome, name) in enumerate(zip(report.outcomes, report.names, strict=True)):
        attribute = " checked" if number == 0 else ""
        label = escape(name)
        inputs.append(
            f'<input type="radio" name="map" id="tab{number}" aria-label="{label}"{attribute}>'
        )
        tabs.append(f'<label class="p{number}" for="tab{number}">{label}</label>')
        panels.append(svg.panel(outcome, window, name))
    offset = window.began - svg.earliest(report.outcomes)
    since = f"{terminal.duration(offset)} after the first submission on"
    shown_nodes, all_nodes = len(window.gpus_by_node), len(report.gpus_by_node)
    note = (
        f"{terminal.duration(window.ended - window.began)}, from {since}; "
        f"{shown_nodes} of {terminal.plural(all_nodes, 'node')}. "
        "A row is a node, as high as its GPUs. "
        "Coloured: gangs on several nodes, a colour each (colours repeat). Grey: jobs on one node. "
        "Red edge: preempted, or lost its node. Point at a bar for its job."
    )
    body = (
        f'<div class="card choose">{"".join(inputs)}<div class="tabs">{"".join(tabs)}</div>'
        f'<div class="panels">{"".join(panels)}</div></div>'
    )
    return _section("The busiest hours, node by node", note, body)


def _closing(report: PageContent) -> str:
    treated = [
        f"<dt>{count:,}</dt><dd>{escape(what)}</dd>" for what, count in report.treatments.items()
    ]
    rows = f"<p>Rows of the trace:</p><dl>{''.join(treated)}</dl>" if treated else ""
    command = f'<code class="command">{escape(report.command)}</code>' if report.command else ""
    return (
        f"<footer>{rows}<p>Waits are over the jobs that started; completion times, slowdowns "
        "(completion time / own run time) and finish-time fairness (completion time / that on 1/n "
        "of the cluster; Themis, NSDI 2020) over those that finished.</p>"
        f"{command}</footer>"
    )
