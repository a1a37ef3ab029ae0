"""Facts outside a gang that the verdicts of its life depend on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bireme.core.gangs import Key
from bireme.core.pod_constraints import Toleration
from bireme.kube.allocations import GangView
from bireme.kube.plans import PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.training_jobs import JobFacts


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """Facts outside the job that a verdict may depend on. ``now`` is POSIX seconds."""

    now: float
    bind_timeout_seconds: float
    start_timeout_seconds: Callable[[JobFacts | GroupFacts], float]
    """Returns how long a gang may take from its plan until it runs."""
    lost_node: Callable[[str], str]
    """Returns the reason why a node counts as lost; empty when it does not."""
    unusable_node: Callable[[str, Sequence[Toleration] | None], str]
    """Returns the obstacle that keeps a planned, unbound replica off its node; empty for none.

    Takes the replica's tolerations, None where they are unknown.
    """
    taken_node: Callable[[str], str]
    """Returns a message if other pods took the room planned on a node; empty otherwise."""
    is_emptying: Callable[[str], bool]
    """Returns whether pods of gangs are still leaving a node."""
    label_drift: Callable[[JobFacts, GangView], Mapping[str, Mapping[str, str]]]
    """Returns by task the pod labels that change how pod rules match, compared with the plan."""
    serves_others: Callable[[JobFacts | GroupFacts, PlanFacts], bool]
    """Returns whether kube-scheduler bound or judged a pod of another gang planned since.

    "Since" starts at this plan, or at the first start of an unbroken series of silent starts.
    """
    seconds_since: Callable[[Key, float], float]
    """Returns the age of a gang's timestamp (POSIX seconds), robust to clocks set back."""
