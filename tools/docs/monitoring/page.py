"""The tables of ``docs/metrics.md``; what stands around them is written by hand."""

import re
from collections.abc import Sequence

from tools.docs.monitoring.metrics import Metric, of_extender, of_operator


def with_tables(page: str) -> str:
    """Fill the tables between the marks of ``page``; ValueError when a mark is missing."""
    for name, metrics in (("operator", of_operator()), ("extender", of_extender())):
        begin, end = f"<!-- metrics of the {name} -->\n", "<!-- end -->"
        page, count = re.subn(f"(?s){begin}.*?{end}", begin + _table(metrics) + end, page)
        if count != 1:
            raise ValueError(f"the page has {count} places {begin.strip()!r}, not one")
    return page


def _table(metrics: Sequence[Metric]) -> str:
    rows = [f"| {_name(each)} | {each.kind} | {each.meaning} |\n" for each in metrics]
    return "".join(["| metric | kind | meaning |\n|---|---|---|\n", *rows])


def _name(metric: Metric) -> str:
    labels = ",".join(metric.labels)
    return f"`{metric.name}{{{labels}}}`" if labels else f"`{metric.name}`"
