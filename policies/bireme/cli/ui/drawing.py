"""Geometry of the board's drawings: bars, nodes, the timeline, charts. Templates make it SVG.

Colours are classes of the style sheet, ``g0`` to ``g11``, because a page may hold no inline style.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from bireme.cli.arguments import Json
from bireme.cli.gangs import GangLine
from bireme.cli.ui.view import NodeRow, QueueRow, Span, View
from bireme.core.accelerators import DEFAULT, Kind
from bireme.core.times import clock_time, duration
from bireme.kube import quantities

_COLOURS: Final = 12
_BAR_WIDTH: Final = 200.0


Colour = Callable[[str], str]
"""Function from a gang to the class of its colour."""


def colours(view: View) -> Colour:
    """Return the colours of ``view``, the same on every page of it.

    Running gangs have different colours as long as there are enough. The later gang gives way, so
    that a start changes no other colour.
    """
    used_colours: set[int] = set()
    assigned: dict[str, int] = {}
    for line in view.running:
        wished = crc32(line.key.encode()) % _COLOURS
        places = ((wished + step) % _COLOURS for step in range(_COLOURS))
        assigned[line.key] = next(
            (colour for colour in places if colour not in used_colours), wished
        )
        used_colours.add(assigned[line.key])
    return lambda gang: f"g{assigned.get(gang, crc32(gang.encode()) % _COLOURS)}"


def amount(resource: str, value: int) -> str:
    """Return an amount as Kubernetes writes it."""
    return str(quantities.format_quantity(resource, value))


def bar(
    parts: Iterable[tuple[str, float]], total: float, width: float = _BAR_WIDTH
) -> list[tuple[str, float, float]]:
    """Return class, left end and width of every part of a bar of ``width`` for ``total``."""
    offset, drawn_parts = 0.0, []
    for name, size in parts:
        share = width * max(0.0, size) / total if total else 0.0
        share = min(share, width - offset)
        if share > 0:
            drawn_parts.append((name, round(offset, 2), round(share, 2)))
        offset += share
    return drawn_parts


# --- queues ---


@dataclass(frozen=True, slots=True)
class QueueBar:
    """A queue's use of one resource against its guarantee and limit, 0 to 200 wide."""

    resource: str
    used: str
    guaranteed: str
    limit: str
    parts: Sequence[tuple[str, float, float]]
    mark: float | None
    """End of the guarantee."""


def queue_bars(queues: Sequence[QueueRow]) -> list[tuple[QueueRow, list[QueueBar]]]:
    """Return for every queue a bar by resource: devices, and what has a limit or guarantee."""
    whole: dict[str, int] = {}
    for queue in queues:
        for amounts in (queue.used, queue.limit, queue.guaranteed):
            for name, value in amounts.items():
                whole[name] = max(whole.get(name, 0), value)
    return [(queue, list(_bars(queue, whole))) for queue in queues]


def _bars(queue: QueueRow, whole: Mapping[str, int]) -> Iterable[QueueBar]:
    bounded = {*queue.limit, *queue.guaranteed}
    # A resource of unknown kind may be an accelerator that a setting adds.
    devices = {name for name in queue.used if DEFAULT.kind(name) is not Kind.OTHER}
    for name in sorted(bounded | devices):
        used = queue.used.get(name, 0)
        limit, guaranteed = queue.limit.get(name), queue.guaranteed.get(name)
        total = limit or whole[name]
        within = min(used, guaranteed or 0)
        parts = bar((("used", within), ("borrowed", used - within)), total)
        mark = None
        if guaranteed and total:
            mark = round(min(_BAR_WIDTH, _BAR_WIDTH * guaranteed / total), 2)
        yield QueueBar(
            name,
            amount(name, used),
            "" if guaranteed is None else amount(name, guaranteed),
            "" if limit is None else amount(name, limit),
            parts,
            mark,
        )


# --- nodes ---

_CELL, _GAP, _IN_A_ROW = 14.0, 2.0, 8


@dataclass(frozen=True, slots=True)
class NodeTile:
    """A node as squares, a device each, with a text that says the same."""

    row: NodeRow
    width: float
    height: float
    cells: Sequence[tuple[str, float, float]]
    """Class and upper left corner."""
    text: str


def domains(rows: Iterable[NodeRow], colour: Colour) -> list[tuple[str, list[NodeTile]]]:
    """Return the nodes by topology domain; those without one last."""
    by_domain: dict[str, list[NodeTile]] = {}
    for row in rows:
        by_domain.setdefault(row.domain, []).append(_tile(row, colour))
    return sorted(by_domain.items(), key=lambda pair: (not pair[0], pair[0]))


def tiles(rows: Iterable[NodeRow], colour: Colour) -> list[NodeTile]:
    """Return the nodes one by one, as :func:`domains` has them."""
    return [_tile(row, colour) for row in rows]


def _tile(row: NodeRow, colour: Colour) -> NodeTile:
    kinds = [colour(gang) for gang, count in row.gang_devices.items() for _ in range(count)]
    kinds += ["others"] * row.other_devices
    # Reserved devices still in use: no decision says which of the node's devices these are.
    due = min(sum(row.kept_for.values()) - row.idle_reserved, len(kinds))
    kinds[len(kinds) - due :] = [f"{kind} due" for kind in kinds[len(kinds) - due :]]
    kinds += ["kept"] * row.idle_reserved
    closed = "closed" if row.remarks else "free"
    kinds = (kinds + [closed] * max(0, row.devices - len(kinds)))[: row.devices]
    cells = []
    for number, kind in enumerate(kinds):
        down, right = divmod(number, _IN_A_ROW)
        cells.append((kind, right * (_CELL + _GAP), down * (_CELL + _GAP)))
    rows = max(1, math.ceil(row.devices / _IN_A_ROW))
    across = min(max(1, row.devices), _IN_A_ROW)
    # With a margin for the rings around cells.
    width, height = across * (_CELL + _GAP) + _GAP, rows * (_CELL + _GAP) + _GAP
    return NodeTile(row, width, height, cells, _tile_text(row))


def _tile_text(row: NodeRow) -> str:
    if not row.devices:
        return ", ".join(("no devices", *row.remarks))
    parts = [f"{row.used} of {row.devices} used"]
    parts += [f"{gang} {count}" for gang, count in row.gang_devices.items()]
    parts += [f"other pods {row.other_devices}"] if row.other_devices else []
    parts += [f"reserved for {gang} {reserved}" for gang, reserved in row.kept_for.items()]
    return ", ".join((*parts, *row.remarks))


def legend(rows: Iterable[NodeRow], colour: Colour) -> list[tuple[str, str]]:
    """Return class and name of each gang on ``rows``, in order of names."""
    gangs = sorted({gang for row in rows for gang in row.gang_devices})
    return [(colour(gang), gang) for gang in gangs]


# --- the timeline ---

_MAX_SPANS: Final = 60
_WIDTH, _LABEL_WIDTH, _ROW, _TOP = 1000.0, 220.0, 20.0, 24.0


@dataclass(frozen=True, slots=True)
class TimelineRow:
    span: Span
    y: float
    x: float
    width: float
    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Gangs over time, earliest first; coordinates within ``width`` and ``height``."""

    rows: Sequence[TimelineRow]
    ticks: Sequence[tuple[float, str]]
    now: float
    width: float
    height: float
    left_out: int


def timeline(view: View) -> Timeline:
    """Return the last ended runs, the running gangs, and the next expected starts."""
    now = view.now
    ran = sorted((s for s in view.spans if s.kind == "ran"), key=lambda s: s.end or 0.0)
    runs = sorted((s for s in view.spans if s.kind == "runs"), key=lambda s: s.begin)
    expected = sorted((s for s in view.spans if s.kind == "expected"), key=lambda s: s.begin)
    third = _MAX_SPANS // 3
    spans = [*ran[-third:], *runs[:third], *expected[:third]]
    spans.sort(key=lambda s: (s.begin, s.gang))
    if not spans:
        return Timeline((), (), 0.0, _WIDTH, _TOP, 0)
    first = min(now, *(s.begin for s in spans))
    last = max(now, *(s.end if s.end is not None else s.begin for s in spans))
    # Starts expected in weeks would leave no room for today.
    last = min(last, now + max(3 * (now - first), 3600.0))
    spans = [s for s in spans if s.begin <= last]
    spread = max(last - first, 60.0)

    def x(seconds: float) -> float:
        share = (min(max(seconds, first), last) - first) / spread
        return round(_LABEL_WIDTH + (_WIDTH - _LABEL_WIDTH - 10) * share, 1)

    rows = []
    for number, span in enumerate(spans):
        # A gang without an expected end is drawn up to now.
        end = span.end if span.end is not None else max(now, span.begin + spread / 50)
        rows.append(
            TimelineRow(
                span,
                _TOP + number * _ROW,
                x(span.begin),
                max(3.0, round(x(end) - x(span.begin), 1)),
                span.gang if len(span.gang) <= 30 else f"{span.gang[:29]}…",
                _span_text(span, now),
            )
        )
    ticks = [
        (x(first + spread * part / 4), _tick(first + spread * part / 4, now)) for part in range(5)
    ]
    height = _TOP + len(rows) * _ROW + 4
    return Timeline(rows, ticks, x(now), _WIDTH, height, len(view.spans) - len(spans))


def _tick(seconds: float, now: float) -> str:
    away = seconds - now
    if abs(away) < 1:
        return "now"
    return f"in {duration(away)}" if away > 0 else f"{duration(-away)} ago"


def _span_text(span: Span, now: float) -> str:
    begin, end = clock_time(span.begin), None if span.end is None else clock_time(span.end)
    match span.kind:
        case "ran":
            return f"ran from {begin} to {end}"
        case "runs":
            lasts = f", expected to end {end}" if end and (span.end or 0) > now else ""
            return f"runs since {begin}{lasts}"
        case "expected":
            return f"expected to start {begin}" + (f" and to end {end}" if end else "")


# --- numbers of one gang, and of a pool ---


def factors(gang: GangLine) -> list[tuple[str, str, Sequence[tuple[str, float, float]]]]:
    """Return name, term and bar of each factor of a priority; the largest is the widest.

    A negative contribution is drawn as an outline.
    """
    largest = max((abs(f.contribution) for f in gang.factors), default=0.0)
    return [
        (
            factor.name,
            f"{factor.value:.3g} x {factor.weight:.3g} = {factor.contribution:.3g}",
            bar(
                (("taken" if factor.contribution < 0 else "used", abs(factor.contribution)),),
                largest,
            ),
        )
        for factor in gang.factors
    ]


def losses(status: Json) -> dict[str, Any] | None:
    """Return the reported losses over steps as a chart; None for fewer than two."""
    reports = (status.get("progress") or {}).get("losses") or ()
    points = [
        (report["step"], report["loss"]) for report in reports if {"step", "loss"} <= report.keys()
    ]
    if len(points) < 2:
        return None
    return _chart("step", [step for step, _ in points], {"loss": [loss for _, loss in points]})


def forecast(pool: Json) -> dict[str, Any] | None:
    """Return the forecast demand of a pool as a chart over hours; None without one."""
    hours = (pool.get("status") or {}).get("forecast") or ()
    if not hours:
        return None
    times = [quantities.parse_timestamp(hour["hour"]) for hour in hours]
    series = {"median": [h["p50"] for h in hours], "upper bound": [h["upper"] for h in hours]}
    return _chart("time", times, series)


def _chart(across: str, x: Sequence[Any], series: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    data = json.dumps([list(x), *(list(values) for values in series.values())])
    rows = list(zip(x, *series.values(), strict=True))
    return {"across": across, "names": list(series), "data": data, "rows": rows}
