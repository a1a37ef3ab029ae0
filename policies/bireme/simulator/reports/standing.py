"""Which of the compared numbers lead, and whether they may be compared at all."""

from collections.abc import Sequence
from typing import Final

from bireme.simulator.comparison import Comparison
from bireme.simulator.metrics import KEYS
from bireme.simulator.reports import words

HIGHER_IS_BETTER: Final = frozenset({"finished", "gpu_utilisation"})
LOWER_IS_BETTER: Final = frozenset(
    {"unfinished", "never_started", "makespan_seconds", "mean_fragmentation"}
    | {"wait_bound_violations", "node_hours", "short_hours"}
    | {key for key in KEYS if key.endswith(("wait_seconds", "jct_seconds", "slowdown"))}
    | {key for key in KEYS if key.endswith("finish_time_fairness")}
)


def best(comparison: Comparison, key: str) -> frozenset[str]:
    """The policies with the best mean of ``key``; none where none is better or all are equal."""
    means = {line.policy: line.means[key].mean for line in comparison.lines if key in line.means}
    if key not in HIGHER_IS_BETTER | LOWER_IS_BETTER or len(set(means.values())) < 2:
        return frozenset()
    lead = (max if key in HIGHER_IS_BETTER else min)(means.values())
    return frozenset(policy for policy, mean in means.items() if mean == lead)


def caveats(comparison: Comparison) -> Sequence[str]:
    """What a reader must know before trusting the numbers, in sentences."""
    found = []
    finished = {line.means["finished"].mean for line in comparison.lines}
    if len(finished) > 1:
        found.append(
            "The policies did not finish the same number of jobs: waits, completion times, "
            "slowdowns and fairness are over those that each did start or finish."
        )
    elif any(line.means["finished"].mean < line.means["jobs"].mean for line in comparison.lines):
        found.append("Some jobs did not finish; they count in no completion time.")
    for line in comparison.lines:
        if line.means["fallbacks"].mean:
            cycles = words.count(line.means["fallbacks"].mean)
            found.append(
                f"{line.policy} gave no valid answer in {cycles} cycles; there the default rules "
                "decided, so the numbers are not all its own."
            )
    if comparison.is_settled:
        found.append(
            f"All {len(comparison.seeds)} seeds gave the same: nothing here depends on chance, "
            "so the intervals are empty."
        )
    elif 1 < len(comparison.seeds) < 5:
        found.append(
            f"Intervals over only {len(comparison.seeds)} seeds are narrower than they should be."
        )
    return found
