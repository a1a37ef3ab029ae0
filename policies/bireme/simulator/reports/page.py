"""One HTML page about a comparison: complete in itself, no script, nothing loaded from anywhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from bireme.simulator.comparison import Comparison, Estimate, PolicyResult
from bireme.simulator.metrics import KEYS, STATISTICS
from bireme.simulator.outcome import Outcome
from bireme.simulator.reports import svg, terminal

# The eight colours of the policies differ with any of the common kinds of colour blindness, by
# their lightness as well, and stand out from the card by at least 3 to 1 in both modes
# (WCAG 2.2, 1.4.11); from the ninth policy on lines are dashed.

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


def css(policies: int) -> str:
    """Return the style sheet of a page with so many policies."""
    light, dark = _colours(LIGHT, LIGHT_POLICIES), _colours(DARK, DARK_POLICIES)
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f"{_STYLE}{_policies(policies)}"
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
        # A legend entry under the pointer lets the other policies fade.
        rules.append(f".curves:has(li.p{number}:hover) .line:not(.p{number}){{opacity:.12}}")
        # The tab that is chosen shows its panel, without a script.
        rules.append(
            f"#tab{number}:checked~.panels>:nth-child({number + 1}){{display:grid}}"
            f"#tab{number}:checked~.tabs label:nth-child({number + 1})"
            "{background:var(--own);border-color:var(--own);color:var(--card)}"
            f"#tab{number}:focus-visible~.tabs label:nth-child({number + 1})"
            "{outline:2px solid var(--ink);outline-offset:2px}"
        )
    rules += [f".g{number}{{fill:var(--c{number})}}" for number in range(COLOURS)]
    return "".join(rules)


_STYLE: Final = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);line-height:1.45;
font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
font-variant-numeric:tabular-nums}
main{max-width:1160px;margin:0 auto;padding:32px 20px 48px}
h1{font-size:clamp(24px,4vw,34px);line-height:1.15;margin:4px 0 10px;letter-spacing:-.015em}
h2{font-size:20px;margin:44px 0 4px;letter-spacing:-.01em}
h3,h4{font-size:14px;margin:0 0 8px}
p{margin:0 0 12px;max-width:78ch}
.kicker{color:var(--soft);font-size:13px;letter-spacing:.02em;margin:0}
.lede{font-size:17px;max-width:none}
.note,footer,.soft{color:var(--soft)}
.note{margin-bottom:14px}
.caveat{border-left:3px solid var(--c1);padding:2px 0 2px 12px}
code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.command{display:block;background:var(--card);border:1px solid var(--edge);border-radius:8px;
padding:10px 12px;overflow-x:auto;white-space:pre}
.cards{display:grid;gap:14px;grid-template-columns:repeat(auto-fit,minmax(min(310px,100%),1fr))}
.card{background:var(--card);border:1px solid var(--edge);border-radius:12px;padding:14px 16px;
min-width:0}
.card h3 span{float:right;font-weight:400;color:var(--soft)}
.bar{display:grid;grid-template-columns:minmax(0,1fr) auto 3.6em;gap:3px 6px;margin-top:9px;
font-size:13px}
.bar .name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.bar .value,.bar .ratio{text-align:right}
.bar .ratio{color:var(--soft)}
.bar .track{position:relative;height:9px;grid-column:1/-1}
.bar .track i{position:absolute;inset:0 auto 0 0;background:var(--own);border-radius:2px;
min-width:2px}
.bar .track b{position:absolute;top:50%;height:2px;margin-top:-1px;background:var(--ink);
box-shadow:0 0 0 1px var(--card)}
.bar.best .name,.bar.best .value,td.best{font-weight:700}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--edge);border-radius:12px}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{padding:6px 12px;text-align:right;white-space:nowrap;vertical-align:top}
thead th{border-bottom:1px solid var(--edge);vertical-align:bottom}
thead th::before{content:"";display:block;height:4px;border-radius:2px;background:var(--own);
margin-bottom:6px}
thead th:first-child::before{visibility:hidden}
th:first-child{text-align:left;position:sticky;left:0;background:var(--card);font-weight:400}
tbody th[colspan]{font-weight:700;padding-top:16px}
tbody tr+tr td,tbody tr+tr th{border-top:1px solid var(--grid)}
td small{display:block;color:var(--soft);font-weight:400;font-size:12px}
td.best{background:color-mix(in srgb,var(--own) 13%,transparent)}
abbr{text-decoration:none;cursor:help}
footer{margin-top:44px;font-size:13px;border-top:1px solid var(--edge);padding-top:16px}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 16px;margin:0 0 16px}
dt{font-weight:600}dd{margin:0}
@media(max-width:640px){main{padding:20px 14px 36px}dl{grid-template-columns:1fr;gap:0}
dd{margin-bottom:6px}th,td{padding:6px 8px}}
@media print{.card,.scroll,.strip{break-inside:avoid}body{background:#fff}}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;padding:0;margin:0 0 12px;
font-size:13px}
.legend li{cursor:default}
.legend li::before{content:"";display:inline-block;width:14px;height:4px;border-radius:2px;
background:var(--own);margin-right:6px;vertical-align:middle}
.plot{display:grid;grid-template-columns:46px minmax(0,1fr);margin-right:22px}
.plot svg{height:var(--height);width:100%;display:block;overflow:visible}
.plot .up,.plot .across,.map .up,.map .across{position:relative;font-size:11.5px;
color:var(--soft)}
.up span{position:absolute;right:8px;transform:translateY(50%);white-space:nowrap}
.across{grid-column:2;height:22px}
.across:empty{height:4px}
.across span{position:absolute;top:5px;transform:translateX(-50%);white-space:nowrap}
.across::before{content:"";position:absolute;left:0;right:0;top:0;border-top:1px solid var(--soft);
opacity:.5}
.grid,.line,.limit{fill:none;vector-effect:non-scaling-stroke}
.grid{stroke:var(--grid);stroke-width:1}
.line{stroke:var(--own);stroke-width:1.8;stroke-linejoin:round;transition:opacity .15s}
.area{fill:var(--own);fill-opacity:.78}
.limit{stroke:var(--ink);stroke-width:1;stroke-dasharray:3 3;opacity:.6}
.strip{padding:8px 0}
.strip h4{margin:0 0 4px 46px;font-size:13px}
.tabs{display:flex;flex-wrap:wrap;gap:6px;margin-bottom:14px}
.tabs label{border:1px solid var(--edge);border-radius:999px;padding:4px 12px;cursor:pointer;
font-size:13px;background:var(--card)}
.choose>input{position:absolute;opacity:0;pointer-events:none}
.map{display:none;grid-template-columns:calc(var(--longest)*1ch + 10px) minmax(0,1fr);
margin-right:22px;font-size:11.5px}
.map .up{height:var(--height)}
.map .up span{left:0;transform:translateY(-50%);overflow:hidden;text-overflow:ellipsis;
text-align:right}
.map svg{height:var(--height);width:100%;display:block}
.idle{fill:var(--idle)}
.map g rect{stroke:var(--card);stroke-width:.7;vector-effect:non-scaling-stroke}
.map g:hover rect{stroke:var(--ink);stroke-width:1.6}
.solo{fill:var(--soft)}.s0{fill-opacity:.34}.s1{fill-opacity:.46}.s2{fill-opacity:.58}
.map g .cut{fill:var(--cut);fill-opacity:1;stroke:none}
"""

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
    """Draw a card per main number with a bar per policy; leave out numbers that are 0 for all."""
    return "".join(
        _card(comparison, names, key, title)
        for key, title in _MAIN.items()
        if any(line.means[key].mean for line in comparison.results if key in line.means)
    )


def _card(comparison: Comparison, names: Sequence[str], key: str, title: str) -> str:
    shown = [line.means[key] for line in comparison.results if key in line.means]
    most = max(max(one.mean, one.high or 0.0) for one in shown)  # bars and intervals fit
    lead = terminal.best(comparison, key)
    better = "higher is better" if key in terminal.HIGHER_IS_BETTER else ""
    rows = [
        _bar(number, name, line, key, most, line.policy in lead)
        for number, (name, line) in enumerate(zip(names, comparison.results, strict=True))
    ]
    return (
        f'<div class="card"><h3 title="{escape(KEYS[key])}">{escape(title)}'
        f"<span>{better}</span></h3>{''.join(rows)}</div>"
    )


def _bar(number: int, name: str, line: PolicyResult, key: str, most: float, is_best: bool) -> str:
    label = f'<span class="name" title="{escape(line.policy)}">{escape(name)}</span>'
    classes = f"bar p{number}{' best' if is_best else ''}"
    mean = line.means.get(key)
    if mean is None:
        return f'<div class="{classes}">{label}<span class="value">none</span></div>'
    bar = f'<i style="width:{100 * mean.mean / most:.1f}%"></i>' if mean.mean else ""
    if mean.interval is not None:
        left, right = (100 * bound / most for bound in mean.interval)
        bar += f'<b style="left:{left:.1f}%;width:{right - left:.1f}%"></b>'
    against = terminal.ratio(line.ratios[key].mean) if key in line.ratios and number else ""
    return (
        f'<div class="{classes}">{label}'
        f'<span class="value">{terminal.worded(key)(mean.mean)}</span>'
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
    word = terminal.worded(key)
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
        treatments: Rows of the trace by the treatment they met.
    """

    comparison: Comparison
    outcomes: Sequence[Outcome]
    gpus_by_node: Mapping[str, int]
    command: str = ""
    treatments: Mapping[str, int] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Return the policies without the parts they share."""
        return terminal.short_names([line.policy for line in self.comparison.results])


def render(report: PageContent) -> str:
    """Return the page as text of UTF-8."""
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
    known = {name: line for name, line in lines.items() if key in line.means}
    if not known:
        return "No job finished."
    name = min(known, key=lambda one: known[one].means[key].mean)
    line, first = known[name], report.names[0]
    found = f"Lowest mean completion time: {name}, {terminal.duration(line.means[key].mean)}"
    if name == first or key not in line.ratios:
        return f"{found}."
    return f"{found}, {terminal.ratio(line.ratios[key].mean)} that of {first}."


def _numbers(report: PageContent) -> str:
    comparison, names = report.comparison, report.names
    seeds = comparison.seeds
    shown = f"Seed {seeds[0]}, and the ratio to {escape(names[0])}."
    if len(seeds) > 1:
        shown = (
            f"Means over {len(seeds)} seeds, and their ratio to {escape(names[0])}. "
            "Thin lines and small print: 95 % intervals."
        )
    best = (
        "The best of a row is bold and tinted, where less or more is better. Point at the name of "
        "a row for its meaning and its key in the JSON."
    )
    cards = f'<div class="cards">{_bars(comparison, names)}</div>'
    table = f'<div class="scroll">{_table(comparison, names)}</div>'
    return _section("At a glance", shown, cards) + _section("All numbers", best, table)


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
        chosen = " checked" if number == 0 else ""
        label = escape(name)
        inputs.append(
            f'<input type="radio" name="map" id="tab{number}" aria-label="{label}"{chosen}>'
        )
        tabs.append(f'<label class="p{number}" for="tab{number}">{label}</label>')
        panels.append(svg.panel(outcome, window, name))
    passed = window.began - svg.earliest(report.outcomes)
    since = f"{terminal.duration(passed)} after the first submission on"
    shown, there = len(window.gpus_by_node), len(report.gpus_by_node)
    note = (
        f"{terminal.duration(window.ended - window.began)}, from {since}; "
        f"{shown} of {terminal.plural(there, 'node')}. A row is a node, as high as its GPUs. "
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
