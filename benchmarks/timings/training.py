"""Training in two processes beside one: samples per second, and whether the curve is the same.

Both train ``a2c`` for the same time with the same seeds, with one core for each process. The curve
is the slowdown in the validation envs at rate 0.7, which do not change from run to run.
"""

import asyncio
import csv
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.report import Pairs, Result, Table, at_least, at_most
from benchmarks.timings.cases import Run, python

STAGE: Final = "ppo"
SCORE: Final = "validation_slowdown"
SHARES: Final = (0.25, 0.5, 0.75, 1.0)
"""Shares of the time at which the curves are compared."""
MAX_RATIO: Final = 1.03
"""Bound on the ratio of two processes to one: about the effect of another seed."""
_SPARE_SECONDS: Final = 200.0
_TORCHRUN: Final = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


@dataclass(frozen=True, slots=True)
class Curve:
    """Rows of a run's stage: (seconds, samples) and (seconds, score)."""

    samples: list[tuple[float, int]]
    scores: list[tuple[float, float]]

    @property
    def samples_per_second(self) -> float:
        (began, first), (ended, last) = self.samples[0], self.samples[-1]
        return (last - first) / (ended - began)

    def score_at(self, share: float) -> float:
        """Return the last score until then; the first where there was none."""
        began, ended = self.samples[0][0], self.samples[-1][0]
        until = began + share * (ended - began)
        before = [score for seconds, score in self.scores if seconds <= until]
        return before[-1] if before else self.scores[0][1]


async def measure_training(run: Run) -> Result:
    """Train with one process and two, in alternation, a seed per pair."""
    seconds = run.pick(60, 40)
    pairs = Pairs()
    curves: dict[str, list[Curve]] = {"stock": [], "bireme": []}
    for number, side in enumerate(run.sides()):
        folder = run.workdir / str(number)
        curve = await asyncio.to_thread(_trained, side == "bireme", folder, number // 2, seconds)
        curves[side].append(curve)
        found = {"samples per second": curve.samples_per_second, "slowdown": curve.score_at(1.0)}
        pairs.add(side, found)
        run.say(f"{'two' if side == 'bireme' else 'one'}: {found}")
    aim, what = at_most(MAX_RATIO, "ratio"), f"slowdown in validation after {seconds} s"
    rows = (
        pairs.row("samples per second", "samples/s", at_least(1.6, "ratio")),
        pairs.row("slowdown", "", aim, what),
    )
    by_side = (curves["bireme"], curves["stock"])
    note = (
        "Left two processes, right one. Each process has as many envs as the one alone, so two see "
        "twice as many samples per update."
    )
    medians: list[tuple[str | float, ...]] = [
        (f"{100 * share:.0f} %", *(median(c.score_at(share) for c in side) for side in by_side))
        for share in SHARES
    ]
    table = Table(
        title="Slowdown in validation, medians",
        columns=("of the time", "two processes", "one process"),
        rows=tuple(medians),
    )
    return Result(rows=rows, baseline="one process", tables=(table,), notes=(note,))


def read_curve(file: Path) -> Curve:
    """Read the stage's rows of a ``curves.csv``; RuntimeError for too few rows, or no score."""
    with file.open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["stage"] == STAGE]
    samples = [(float(row["seconds"]), int(row["step"])) for row in rows]
    scores = [(float(row["seconds"]), float(row[SCORE])) for row in rows if row.get(SCORE)]
    if len(samples) < 2 or not scores:
        raise RuntimeError(f"{file} has {len(samples)} rows of {STAGE}, {len(scores)} with {SCORE}")
    return Curve(samples, scores)


def _trained(is_double: bool, out: Path, seed: int, seconds: float) -> Curve:
    program = [*(_TORCHRUN if is_double else ()), "-m", "bireme_lab.training", "a2c"]
    options = ["--out", str(out), "--seed", str(seed), "--minutes", str(seconds / 60)]
    # Gloo would look for its network by the name of the host, which may not resolve.
    python([*program, *options], seconds + _SPARE_SECONDS, GLOO_SOCKET_IFNAME="lo")
    return read_curve(out / "curves.csv")
