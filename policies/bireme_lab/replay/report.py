"""A replay as text for a person and as numbers for a program."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

import msgspec

from bireme.replay.decisions import RecordedPolicies
from bireme.replay.reader import Record
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource
from bireme.tables import align_columns
from bireme_lab.replay.decisions import KINDS, DecisionComparison
from bireme_lab.replay.waits import WaitChange, WaitComparison
from bireme_lab.replay.workload import Workload
from bireme_lab.simulator.reports.terminal import duration, plural, table

_MAX_CHANGES: Final = 5
_COLUMNS: Final = {
    "finished": "finished",
    "mean_wait_seconds": "wait mean",
    "p50_wait_seconds": "wait p50",
    "p99_wait_seconds": "wait p99",
    "mean_jct_seconds": "JCT mean",
    "p50_jct_seconds": "JCT p50",
    "p99_jct_seconds": "JCT p99",
    "preemptions": "preempted",
}


@dataclass(frozen=True, slots=True)
class Replay:
    """The results of a replay.

    Attributes:
        recorded: The name of the policy of the record.
        comparisons: Every policy compared with the record, the record's own first.
        lost: Cycles that could not be recorded.
        waits: None if no gang of the record can be counted.
    """

    record: Record
    recorded: str
    comparisons: Mapping[str, DecisionComparison]
    lost: int
    workload: Workload
    waits: WaitComparison | None
    sources: RecordedPolicies

    @property
    def own(self) -> DecisionComparison:
        """Return the comparison of the policies that decided with their own record."""
        return self.comparisons[self.recorded]

    def to_json(self) -> dict[str, object]:
        """Return ``record``, ``decisions`` and ``waits``, as docs/replay.md describes them."""
        trace, waits = self.workload.trace, self.waits
        return {
            "record": {
                "policy": self.recorded,
                "sources": [
                    {
                        **msgspec.structs.asdict(source),
                        "cycles": cycles,
                        "fault": self.sources.faults.get(source, ""),
                    }
                    for source, cycles in self.sources.cycles.items()
                ],
                "files": [str(path) for path, _ in self.record.files],
                "seconds": self.workload.seconds,
                "torn_lines": self.record.torn,
                "lost_cycles": self.lost,
                "nodes": len(trace.nodes),
                "gangs": len(trace.jobs),
                "treatments": dict(trace.treatments),
            },
            "decisions": {
                name: comparison.to_json() for name, comparison in self.comparisons.items()
            },
            "waits": None if waits is None else _waits_json(waits),
        }

    def text(self) -> str:
        """Return the report for a terminal."""
        parts = (self._title(), self._check(), self._decisions(), self._waits())
        return "\n".join(line for part in parts for line in part)

    def _title(self) -> Iterator[str]:
        trace, record = self.workload.trace, self.record
        yield (
            f"{plural(self.sources.cycles.total(), 'cycle')} in "
            f"{plural(len(record.files), 'file')} over {duration(self.workload.seconds)}: "
            f"{plural(len(trace.jobs), 'gang')} on {plural(len(trace.nodes), 'node')}, "
            f"by {self.recorded}"
        )
        yield from self._deciders()
        if self.lost:
            yield f"{plural(self.lost, 'cycle')} more could not be recorded."
        if record.torn:
            yield f"{plural(record.torn, 'last line')} cut off and left out."
        if record.runs > 1:
            yield f"The operator began anew {plural(record.runs - 1, 'time')}."

    def _deciders(self) -> Iterator[str]:
        for source, cycles in self.sources.cycles.items():
            if source == SETTINGS_SOURCE:
                continue
            checkpoint = f", checkpoint {source.checkpoint} sha256 {source.sha256[:12]},"
            learned = checkpoint if source.checkpoint else ""
            by = (
                f"SchedulingPolicy {source.name}{learned}"
                if source.name
                else "The policy of the settings"
            )
            yield f"{by}{_canary_text(source)} decided {cycles:,} of them."
            if fault := self.sources.faults.get(source):
                yield f"It cannot be asked again: {fault}."

    def _check(self) -> Iterator[str]:
        comparison = self.own
        one = set(self.sources.cycles) <= {SETTINGS_SOURCE}
        then = f"{self.recorded} decides" if one else "What decided then decides"
        yield f"{then} {comparison.same:,} of {comparison.cycles:,} cycles exactly as recorded."
        if comparison.same == comparison.cycles:
            return
        if comparison.examples:
            yield f"The first other one: {comparison.examples[0].place}."
        if self.record.versions != (version("bireme"),):
            yield (
                f"It was recorded by Bireme {', '.join(self.record.versions)}, "
                f"and this is {version('bireme')}."
            )

    def _decisions(self) -> Iterator[str]:
        other_policies = {
            name: one for name, one in self.comparisons.items() if name != self.recorded
        }
        if not other_policies:
            return
        yield ""
        yield "Cycle by cycle, on what was recorded:"
        header = ["policy", "as recorded", *(kind.replace("_", " ") for kind in KINDS)]
        rows = [
            [name, f"{comparison.same:,}", *(f"{comparison.counts[kind]:,}" for kind in KINDS)]
            for name, comparison in other_policies.items()
        ]
        yield from align_columns([header, *rows])
        for name, comparison in other_policies.items():
            yield from _examples(name, comparison)

    def _waits(self) -> Iterator[str]:
        waits, workload = self.waits, self.workload
        yield ""
        if waits is None:
            yield "No gang came in this record, so there are no waits to compare."
            return
        yield "From beginning to end, simulated on the recorded nodes and queues:"
        yield table(waits.comparison, _COLUMNS)
        actual = waits.actual
        if actual.mean is not None:
            gangs = plural(waits.actual_gangs, "gang")
            yield (
                f"As it was: wait mean {duration(actual.mean)}, p50 {duration(actual.p50 or 0.0)}, "
                f"p99 {duration(actual.p99 or 0.0)} over the {gangs} that started."
            )
        for what, count in workload.trace.treatments.items():
            yield f"{plural(count, 'gang')} {what}."
        for name, changes in waits.changes.items():
            yield from _change_lines(name, changes)


def _canary_text(source: PolicySource) -> str:
    """Return the canaries that decided with ``source`` as text; empty without any."""
    named = (f"{c.name} for {', '.join(c.queues)}" for c in source.canaries)
    return f" with canary {' and '.join(named)}" if source.canaries else ""


def _examples(name: str, comparison: DecisionComparison) -> Iterator[str]:
    for one in comparison.examples[:2]:
        when = datetime.fromtimestamp(one.now, UTC).isoformat(sep=" ", timespec="seconds")
        kinds = "; ".join(f"{k.replace('_', ' ')}: {_few(gangs)}" for k, gangs in one.gangs.items())
        yield f"  {name}, {when}, {one.place}: {kinds}"


def _few(names: Iterable[str]) -> str:
    first, *rest = names
    return f"{first} and {len(rest)} more" if rest else first


def _change_lines(name: str, changes: Sequence[WaitChange]) -> Iterator[str]:
    yield ""
    yield f"{plural(len(changes), 'gang')} would wait another time under {name}" + (
        ", most of all:" if changes else "."
    )
    rows = [
        [f"  {one.gang}", _wait(one.recorded_seconds), "->", _wait(one.other_seconds)]
        for one in changes[:_MAX_CHANGES]
    ]
    yield from align_columns(rows) if rows else ()


def _wait(seconds: float | None) -> str:
    return "never starts" if seconds is None else duration(seconds)


def _waits_json(waits: WaitComparison) -> dict[str, object]:
    return {
        "runs": [run.to_json() for line in waits.comparison.results for run in line.runs],
        "comparison": waits.comparison.to_json(),
        "actual": {"gangs": waits.actual_gangs, **asdict(waits.actual)},
        "changes": {
            name: [asdict(change) for change in changes] for name, changes in waits.changes.items()
        },
    }
