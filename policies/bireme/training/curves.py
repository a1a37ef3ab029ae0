"""The curves of a run: a table that grows by a row per update, and its picture.

``curves.csv`` has the columns ``stage``, ``step`` (samples of that stage, over all processes) and
``seconds`` (of the whole run, over all its starts), then one per number that was told. A number
that appears later gets a column then; cells it has no value for are empty.
"""

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

KEYS: Final = ("stage", "step", "seconds")
_ACROSS: Final = 3
_PANEL_INCHES: Final = (4.0, 2.6)


class Curves:
    """The rows of one ``curves.csv``, in memory and on disk alike."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, str]] = []
        self._columns = list(KEYS)
        self._is_on_disk = False

    @classmethod
    def read(cls, path: Path, rows: int) -> "Curves":
        """The first ``rows`` of ``path``; the others leave it when the next row is added."""
        curves = cls(path)
        if path.exists():
            with path.open(newline="", encoding="utf-8") as lines:
                reader = csv.DictReader(lines)
                curves.rows = list(reader)[:rows]
                curves._columns = list(reader.fieldnames or KEYS)
        return curves

    @property
    def seconds(self) -> float:
        """Those of the last row."""
        return float(self.rows[-1]["seconds"]) if self.rows else 0.0

    @property
    def last_numbers(self) -> dict[str, float]:
        """The last value of every number, in the order of the columns."""
        names = [name for name in self._columns if name not in KEYS]
        told = {name: row[name] for row in self.rows for name in names if row.get(name)}
        return {name: float(told[name]) for name in names if name in told}

    def add(self, stage: str, step: int, seconds: float, numbers: Mapping[str, float]) -> None:
        """Write a row; one with a number nobody told before rewrites the table."""
        told = {key: f"{number:.6g}" for key, number in numbers.items()}
        row = {"stage": stage, "step": str(step), "seconds": f"{seconds:.3f}", **told}
        new = [key for key in row if key not in self._columns]
        self.rows.append(row)
        if new or not self._is_on_disk:
            self._columns += new
            self._write()
            return
        with self.path.open("a", newline="", encoding="utf-8") as lines:
            csv.DictWriter(lines, self._columns).writerow(row)

    def plot(self, target: Path) -> None:
        """A picture with a panel per number, over the seconds of the run; a line per stage."""
        from matplotlib.figure import Figure

        names = [name for name in self._columns if name not in KEYS]
        down = max(1, math.ceil(len(names) / _ACROSS))
        size = (_ACROSS * _PANEL_INCHES[0], down * _PANEL_INCHES[1])
        figure = Figure(figsize=size, layout="constrained")
        for at, name in enumerate(names):
            self._draw(figure.add_subplot(down, _ACROSS, at + 1), name)
        figure.savefig(target)

    def _draw(self, axes: Any, name: str) -> None:
        for number, stage in enumerate(dict.fromkeys(row["stage"] for row in self.rows)):
            points = [
                (float(row["seconds"]), float(row[name]))
                for row in self.rows
                if row["stage"] == stage and row.get(name)
            ]
            if points:
                line = {"label": stage, "color": f"C{number}", "marker": ".", "markersize": 3}
                axes.plot(*zip(*points, strict=True), **line)
        axes.set_title(name.replace("_", " "), fontsize=9)
        axes.set_xlabel("seconds", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.legend(fontsize=7)

    def _write(self) -> None:
        with self.path.open("w", newline="", encoding="utf-8") as lines:
            writer = csv.DictWriter(lines, self._columns)
            writer.writeheader()
            writer.writerows(self.rows)
        self._is_on_disk = True
