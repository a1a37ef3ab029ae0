"""Verdict on one seed: same, late, overtaken or different.

*   **same**: the cluster did what the simulator does with the scenario as planned.
*   **late**: it did what the simulator does when jobs come and gangs end when they did in the
    cluster: the machine was slow, and the same rules decided on what there was.
*   **overtaken**: nor that, but a gang came or ended while another was being stopped, or a decision
    fell while one was ending replica by replica. In the simulation these take no time.
*   **differs**: none of these. One of the two is wrong.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.differential.course import Course, differences, pairs_of_starts, tied_starts
from benchmarks.differential.runner import Seen
from benchmarks.differential.scenarios import Scenario
from benchmarks.differential.simulations import as_planned, as_seen

Word = Literal["same", "late", "overtaken", "differs"]
TOLERANCE_SECONDS: Final = 2.0
"""Largest distance of a start from its moment in the simulation of what was seen."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one seed.

    Attributes:
        expected: The simulation with arrivals and ends as seen; as planned where only that agrees.
        lines: The differences from ``expected``, or of a late one from the plan.
    """

    seed: int
    word: Word
    expected: Course
    seen: Course
    lines: Sequence[str]

    @property
    def delays(self) -> list[float]:
        """Seconds of each start after the simulator's."""
        pairs = pairs_of_starts(self.expected, self.seen)
        return [found.seconds - wanted.seconds for wanted, found in pairs]

    @property
    def ties(self) -> int:
        return tied_starts(self.expected)


def verdict_on(scenario: Scenario, seen: Seen) -> Verdict:
    word: Word
    planned = as_planned(scenario)
    followed = as_seen(scenario, seen.course, seen.until_seconds)
    unplanned = differences(planned, seen.course, math.inf)
    unfollowed = differences(followed, seen.course, TOLERANCE_SECONDS)
    if not unfollowed:
        word = "late" if unplanned else "same"
        return Verdict(scenario.seed, word, followed, seen.course, unplanned)
    if not differences(planned, seen.course, TOLERANCE_SECONDS):
        return Verdict(scenario.seed, "same", planned, seen.course, ())
    word = "overtaken" if seen.course.is_overtaken else "differs"
    return Verdict(scenario.seed, word, followed, seen.course, unfollowed)
