"""Panels and dashboards in Grafana's JSON, laid out from left to right."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS: Final = 24
_REFERENCES: Final = "ABCDEFGHIJ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture.

    Attributes:
        queries: Legend to PromQL; ``{{label}}`` in a legend stands for the label's value.
        kind, unit: Grafana's names.
        size: Width and height; a dashboard has 24 columns.
        defaults: How all series are drawn, beside the unit.
        overrides: Name of a series to how it alone is drawn.
        more: Other fields of the panel.
    """

    title: str
    description: str
    queries: Mapping[str, str]
    kind: str = "timeseries"
    unit: str = "short"
    size: tuple[int, int] = (8, 8)
    defaults: Json = field(default_factory=dict)
    overrides: Mapping[str, Json] = field(default_factory=dict)
    more: Json = field(default_factory=dict)

    def to_json(self) -> Json:
        overrides = [
            {
                "matcher": {"id": "byName", "options": name},
                "properties": [{"id": key, "value": value} for key, value in drawn.items()],
            }
            for name, drawn in self.overrides.items()
        ]
        targets = [
            {"refId": reference, "expr": query, "legendFormat": legend, "datasource": _SOURCE}
            for reference, (legend, query) in zip(_REFERENCES, self.queries.items(), strict=False)
        ]
        return {
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": _SOURCE,
            "targets": targets,
            "fieldConfig": {
                "defaults": {"unit": self.unit, **self.defaults},
                "overrides": overrides,
            },
            **self.more,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One file. ``panels`` has headings as plain text between the panels."""

    uid: str
    title: str
    description: str
    panels: Sequence[Panel | str]
    since: str
    until: str = "now"
    variables: Sequence[Json] = ()

    def to_json(self) -> Json:
        source = {
            "name": "datasource",
            "type": "datasource",
            "query": "prometheus",
            "label": "Data source",
            "refresh": 1,
        }
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["bireme"],
            "timezone": "browser",
            "editable": True,
            "graphTooltip": 1,
            "refresh": "1m",
            "schemaVersion": 39,
            "version": 1,
            "time": {"from": self.since, "to": self.until},
            "templating": {"list": [source, *self.variables]},
            "panels": list(laid_out(self.panels)),
        }


def laid_out(panels: Sequence[Panel | str]) -> Iterator[Json]:
    """Yield the panels with their numbers and places."""
    x = y = tallest = 0
    for number, panel in enumerate(panels, 1):
        width, height = (_COLUMNS, 1) if isinstance(panel, str) else panel.size
        if x + width > _COLUMNS:
            x, y, tallest = 0, y + tallest, 0
        place = {"id": number, "gridPos": {"x": x, "y": y, "w": width, "h": height}}
        if isinstance(panel, str):
            yield {**place, "type": "row", "title": panel, "collapsed": False, "panels": []}
        else:
            yield {**place, **panel.to_json()}
        x, tallest = x + width, max(tallest, height)


def query_variable(name: str, label: str, query: str) -> Json:
    """Return a variable with the values that ``query`` finds, of which several may be chosen."""
    return {
        "name": name,
        "type": "query",
        "label": label,
        "datasource": _SOURCE,
        "query": {"query": query, "refId": f"{name}s"},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
    }


def coloured(*steps: tuple[float, str]) -> Json:
    """Return defaults of a number that is green, and takes each colour from that value on."""
    green = {"color": "green", "value": None}
    given = [{"color": colour, "value": value} for value, colour in steps]
    thresholds = {"mode": "absolute", "steps": [green, *given]}
    return {"color": {"mode": "thresholds"}, "thresholds": thresholds}


def red_below(value: float) -> Json:
    """Return defaults of a number that is red until it reaches ``value``."""
    steps = [{"color": "red", "value": None}, {"color": "green", "value": value}]
    return {
        "color": {"mode": "thresholds"},
        "thresholds": {"mode": "absolute", "steps": steps},
    }
