"""The judgement on the result of a tuning: it wins, or is refused with reasons and intervals."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from bireme.contender import Contender
from bireme_lab.contest.verdicts import MIN_BLOCKS, Verdict
from bireme_lab.simulator.comparison import Estimate
from bireme_lab.tuning.past import Past
from bireme_lab.tuning.search import SearchResult

MIN_DAYS: Final = 3.0
"""The days of a week are unlike each other; a test of fewer days says little."""
MAX_TAIL: Final = 1.05
"""The maximum ratio of the p99 wait with which a candidate may win."""
_LONGER: Final = "record for longer, and name another --out"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judged candidate, the baseline, and the reasons for a refusal; with none it wins."""

    best: Contender
    baseline: Contender
    verdict: Verdict
    reasons: tuple[str, ...]

    @property
    def wins(self) -> bool:
        """Whether it should decide from now on."""
        return not self.reasons

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "wins": self.wins,
            "policy": self.best.name,
            "baseline": self.baseline.name,
            "reasons": list(self.reasons),
            **asdict(self.verdict),
        }


def judgement_on(
    past: Past, result: SearchResult, verdict: Verdict, least_days: float
) -> Judgement:
    """Return the judgement on the best candidate of ``result``, by its ``verdict`` on the test."""
    reasons = tuple(_reasons(past, result, verdict, least_days))
    return Judgement(result.best, past.baseline, verdict, reasons)


def _reasons(
    past: Past, result: SearchResult, verdict: Verdict, least_days: float
) -> Iterator[str]:
    baseline_name = past.baseline.name
    if result.loss_of(result.best) >= result.loss_of(past.baseline):
        yield f"nothing that was tried does better than {baseline_name} on the validation windows"
    if past.test_days < least_days:
        yield (
            f"the test has {past.test_days:.3g} days of the {least_days:g} that it needs: {_LONGER}"
        )
    jct, wait = interval_text(verdict.jct), verdict.p99_wait
    match verdict.finding:
        case "too few":
            yield (
                f"only {verdict.blocks} windows of the test have gangs, of the {MIN_BLOCKS} "
                f"that an interval needs: {_LONGER}"
            )
        case "unfinished":
            yield (
                f"{verdict.unfinished} gangs never ended in its simulation, or came in windows in "
                "which one of the two policies ended none"
            )
        case "worse":
            yield f"its mean completion time is {jct} of that by {baseline_name}: it is longer"
        case "level":
            yield (
                f"its mean completion time is {jct} of that by {baseline_name}: the interval "
                "contains 1"
            )
        case "better":
            pass
    if wait is not None and wait.mean > MAX_TAIL:
        yield (
            f"its p99 wait is {interval_text(wait)} of that by {baseline_name}, and at most "
            f"{MAX_TAIL} is accepted"
        )
    if wait is None and verdict.p99_wait_seconds > 0:
        yield (
            f"its p99 wait is {verdict.p99_wait_seconds:.3g} s, and by {baseline_name} nobody "
            "waited"
        )
    if verdict.fallbacks:
        yield f"the rules had to decide in its place in {verdict.fallbacks} cycles"


def interval_text(ratio: Estimate) -> str:
    """Return a ratio with its 95 % interval, as far as it has one."""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.mean:.3f} (without an interval)"
    return f"{ratio.mean:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
