"""One HTML page about a comparison: complete in itself, no script, nothing loaded from anywhere.

From top to bottom: what was simulated and what must be known before trusting it, the main numbers
as bars, all numbers as a table, GPUs and queue over time, the distributions behind the means, and
the busiest hours node by node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from bireme.simulator.comparison import Comparison
from bireme.simulator.outcome import Outcome
from bireme.simulator.reports import charts, figures, gantt, standing, style, words


@dataclass(frozen=True, slots=True)
class Report:
    """What the page is about.

    Attributes:
        outcomes: One per policy, in the order of the comparison, all of its first seed.
        gpus_by_node: In the cluster's order.
        command: What to type to get the same again.
        treatments: How many rows of the trace met which treatment.
    """

    comparison: Comparison
    outcomes: Sequence[Outcome]
    gpus_by_node: Mapping[str, int]
    command: str = ""
    treatments: Mapping[str, int] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The policies without the parts they share."""
        return words.short_names([line.policy for line in self.comparison.lines])


def render(report: Report) -> str:
    """The page, as text of UTF-8."""
    title = escape(report.comparison.trace)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}: scheduling policies compared</title>"
        f"<style>{style.css(len(report.outcomes))}</style></head><body><main>"
        f"{_opening(report)}{_numbers(report)}{_over_time(report)}{_map(report)}{_closing(report)}"
        "</main></body></html>\n"
    )


def _opening(report: Report) -> str:
    comparison = report.comparison
    jobs = len(report.outcomes[0].jobs)
    seeds = comparison.seeds
    size = (
        f"{words.plural(jobs, 'job')} on {words.plural(len(report.gpus_by_node), 'node')} with "
        f"{words.plural(report.outcomes[0].total_gpus, 'GPU')}, "
        f"{words.plural(len(comparison.lines), 'policy')}, {words.plural(len(seeds), 'seed')}"
    )
    notes = [f'<p class="caveat">{escape(text)}</p>' for text in standing.caveats(comparison)]
    return (
        '<header><p class="kicker">Bireme simulation</p>'
        f"<h1>{escape(comparison.trace)}</h1>"
        f'<p class="lede">{size}. {escape(_finding(report))}</p>{"".join(notes)}</header>'
    )


def _finding(report: Report) -> str:
    """The policy with the lowest mean completion time, and its ratio to the first."""
    lines = dict(zip(report.names, report.comparison.lines, strict=True))
    key = "mean_jct_seconds"
    known = {name: line for name, line in lines.items() if key in line.means}
    if not known:
        return "No job finished."
    name = min(known, key=lambda one: known[one].means[key].mean)
    line, first = known[name], report.names[0]
    found = f"Lowest mean completion time: {name}, {words.duration(line.means[key].mean)}"
    if name == first or key not in line.ratios:
        return f"{found}."
    return f"{found}, {words.ratio(line.ratios[key].mean)} that of {first}."


def _numbers(report: Report) -> str:
    comparison, names = report.comparison, report.names
    seeds = comparison.seeds
    shown = f"Seed {seeds[0]}, and the ratio to {escape(names[0])}."
    if len(seeds) > 1:
        shown = (
            f"Means over {len(seeds)} seeds, and their ratio to {escape(names[0])}. "
            "Thin lines and small print: 95 % intervals."
        )
    return (
        "<section><h2>At a glance</h2>"
        f'<p class="note">{shown}</p>'
        f'<div class="cards">{figures.bars(comparison, names)}</div></section>'
        "<section><h2>All numbers</h2>"
        '<p class="note">The best of a row is bold and tinted, where less or more is better. Point '
        "at the name of a row for its meaning and its key in the JSON.</p>"
        f'<div class="scroll">{figures.table(comparison, names)}</div></section>'
    )


def _over_time(report: Report) -> str:
    outcomes, names = report.outcomes, report.names
    legend = _legend(names)
    note = (
        f'<p class="note">Seed {outcomes[0].seed}; time since the first submission, means over '
        f"{charts.BINS} equal stretches.</p>"
    )
    usage = (
        f"<section><h2>GPUs in use</h2>{note}"
        f'<div class="card">{charts.usage(outcomes, names)}</div></section>'
    )
    return (
        f"{usage if outcomes[0].total_gpus else ''}"
        f'<section class="curves"><h2>Gangs waiting</h2>{note}'
        f'{legend}<div class="card">{charts.waiting(outcomes)}</div></section>'
        '<section class="curves"><h2>How long jobs took</h2>'
        '<p class="note">Share of jobs that needed at most so long; further left and higher is '
        f'better.</p>{legend}<div class="cards">{charts.distributions(outcomes)}</div></section>'
    )


def _map(report: Report) -> str:
    if not any(report.gpus_by_node.values()):
        return ""
    window = gantt.choose(report.outcomes, report.gpus_by_node)
    tabs, inputs, panels = [], [], []
    for number, (outcome, name) in enumerate(zip(report.outcomes, report.names, strict=True)):
        chosen = " checked" if number == 0 else ""
        label = escape(name)
        inputs.append(
            f'<input type="radio" name="map" id="tab{number}" aria-label="{label}"{chosen}>'
        )
        tabs.append(f'<label class="p{number}" for="tab{number}">{label}</label>')
        panels.append(gantt.panel(outcome, window, name))
    passed = window.began - gantt.earliest(report.outcomes)
    since = f"{words.duration(passed)} after the first submission on"
    shown, there = len(window.gpus_by_node), len(report.gpus_by_node)
    return (
        "<section><h2>The busiest hours, node by node</h2>"
        f'<p class="note">{words.duration(window.ended - window.began)}, from {since}; '
        f"{shown} of {words.plural(there, 'node')}. A row is a node, as high as "
        "its GPUs. Coloured: gangs on several nodes, a colour each (colours repeat). Grey: jobs on "
        "one node. Red edge: preempted, or lost its node. Point at a bar for its job.</p>"
        f'<div class="card choose">{"".join(inputs)}<div class="tabs">{"".join(tabs)}</div>'
        f'<div class="panels">{"".join(panels)}</div></div></section>'
    )


def _closing(report: Report) -> str:
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


def _legend(names: Sequence[str]) -> str:
    entries = (f'<li class="p{number}">{escape(name)}</li>' for number, name in enumerate(names))
    return f'<ul class="legend">{"".join(entries)}</ul>'
