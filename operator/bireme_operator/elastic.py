"""Running elastic gangs that lose replicas: which are missed, and which are only given up.

A pure judgement over facts. As long as the first replica of the plan (where the others meet) and
as many as the job may start with go on, one that is lost or fails is no reason to start again: the
plan goes on without it, and the core may grow the gang later. A planned replica that is merely not
there yet is created, and given up when it does not get onto its node in time.

A failure of the training itself reaches the first replica too. Another one may fail alone: its
node is bad, or it was added while the training ended and found nobody to join.
"""

from collections import Counter

from bireme.kube.gang_views import GangView
from bireme.kube.plans import Member
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator.lifecycle import Situation


def is_resizable(job: JobFacts) -> bool:
    """Whether the size of the gang may change as things stand with the job."""
    is_stopping = job.is_leaving or job.is_suspended
    is_elastic = job.spec is not None and job.spec.is_elastic
    return is_elastic and job.phase == "Running" and not is_stopping


def going_on(job: JobFacts, view: GangView, at: Situation) -> GangView:
    """``view`` with those replicas alone that go on or have ended, if they can do without others.

    Of any other gang, the whole ``view``: it is judged by every replica.
    """
    if not is_resizable(job) or view.plan.attempt != job.attempt:
        return view
    there = tuple((member, pod) for member, pod in view.members if _goes_on(pod, at))
    sizes = Counter(member.task for member, _ in there)
    has_first = there[:1] == view.members[:1]
    least = job.gang(0).at_minimum.tasks
    if not has_first or any(sizes[task.name] < task.replicas for task in least):
        return view
    return view if len(there) == len(view.members) else GangView(view.plan, there, view.leftovers)


def _goes_on(pod: PodFacts | None, at: Situation) -> bool:
    if pod is None or not pod.node or pod.is_leaving:
        return False
    if pod.is_terminal:
        return pod.phase == "Succeeded"
    return not at.lost_node(pod.node)


def lost(job: JobFacts, view: GangView, at: Situation) -> dict[Member, str]:
    """Replicas that ``job`` goes on without, and why; none where it cannot."""
    enough = going_on(job, view, at)
    if enough is view:
        return {}
    waited = at.seconds_since(job.key, max(view.plan.planned, view.plan.resized))
    stays = {member for member, _ in enough.members}
    verdicts = {m: _verdict(m, pod, at, waited) for m, pod in view.members if m not in stays}
    return {member: why for member, why in verdicts.items() if why}


def _verdict(member: Member, pod: PodFacts | None, at: Situation, waited_seconds: float) -> str:
    """Why a replica that does not go on is given up; empty while it may still come."""
    if pod is not None and pod.node:
        return at.lost_node(pod.node) or pod.failure or "it was deleted"
    if pod is not None and pod.is_leaving:
        return "it was deleted"
    if waited_seconds > at.bind_timeout_seconds:
        return f"not on its node after {waited_seconds:.0f} s"
    return at.lost_node(member.node) or at.unusable_node(member.node)
