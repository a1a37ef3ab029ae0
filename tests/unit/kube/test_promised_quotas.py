"""Quotas count the pods of plans from the plan on, whether they exist yet or not, and once."""

from bireme.kube import wire
from bireme.kube.plans import PlanFacts
from testbed.objects.cluster_state import JOB, PLAN, ClusterStateFeed
from testbed.objects.facts import CREATED, pod_manifest, through_the_wire

KEY = ("default", "all")


def feed_with_quota(used_pods: int, plan: PlanFacts | None) -> ClusterStateFeed:
    """A job of two workers of 2 GPUs, and a quota of which others use ``used_pods``."""
    feed = ClusterStateFeed()
    count(feed, used_pods)
    feed.job(plan=plan)
    return feed


def count(feed: ClusterStateFeed, pods: int) -> None:
    """Have the quota's status say how many pods exist."""
    hard = {"pods": "9", "requests.nvidia.com/gpu": "8"}
    used = {"pods": str(pods), "requests.nvidia.com/gpu": str(2 * pods)}
    manifest = {
        "metadata": {"namespace": KEY[0], "name": KEY[1]},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": used},
    }
    feed.state.quotas.put(KEY, through_the_wire(manifest, wire.V1ResourceQuota))


def used(feed: ClusterStateFeed) -> dict[str, int]:
    found = feed.state.snapshot(CREATED).quotas[KEY].used
    return {name: found[name] for name in ("pods", "requests.nvidia.com/gpu")}


def test_a_job_that_waits_is_promised_nothing() -> None:
    assert used(feed_with_quota(1, plan=None)) == {"pods": 1, "requests.nvidia.com/gpu": 2}


def test_pods_of_a_plan_count_before_they_are_made() -> None:
    """Else two jobs would be admitted for what the quota has for one, and the second refused."""
    assert used(feed_with_quota(1, PLAN)) == {"pods": 3, "requests.nvidia.com/gpu": 6}


def test_a_pod_that_was_made_counts_in_the_status_of_the_quota_alone() -> None:
    feed = feed_with_quota(1, PLAN)
    feed.member(pod_manifest(JOB, PLAN, PLAN.members[0]))
    count(feed, 2)
    assert used(feed) == {"pods": 3, "requests.nvidia.com/gpu": 6}
