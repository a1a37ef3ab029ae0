"""Pods without a plan that are to stop: those pods alone, never a PodGroup of their name."""

from dataclasses import replace
from unittest.mock import AsyncMock, Mock

from bireme.core.decision import Decision, Preempt
from bireme.kube import names
from bireme.kube.client import ApiError
from bireme.kube.plans import Member
from bireme_operator.budget_claims import BudgetClaims
from bireme_operator.preemptions import Preemptions
from testbed.objects.cluster_state import PLAN, ClusterStateFeed, own_pod
from testbed.objects.facts import gated_pod

GROUP = replace(
    PLAN, requests={"t": PLAN.requests["worker"]}, members=(Member("t", "n0", uid="a-uid"),)
)


async def test_a_group_does_not_stop_for_orphans_of_its_name_that_have_gone_meanwhile() -> None:
    cluster = ClusterStateFeed()
    cluster.job()
    cluster.group(GROUP)
    cluster.member(gated_pod("a"))
    orphan = own_pod(0, node="n1", ownerReferences=[])
    orphan["metadata"]["labels"] |= {names.POD_GROUP_LABEL: "group", names.QUEUE_LABEL: "other"}
    cluster.member(orphan)
    running = {held.gang.uid: held for held in cluster.snapshot().running}
    assert running.keys() == {"group-group", "default/group/orphans/other"}
    (waiting,) = (gang for gang in cluster.waiting() if gang.kind == "TrainingJob")
    groups = dict(cluster.state.objects.groups)

    stop = Preempt(running["default/group/orphans/other"], waiting, "")
    for is_there, stopping in ((True, {stop.gang.uid}), (False, set[str]())):
        if not is_there:
            cluster.state.objects.delete_member(("default", orphan["metadata"]["name"]))
        preemptions = Preemptions(
            cluster.state,
            writes=Mock(list_budgets=AsyncMock(side_effect=ApiError(500, "", ""))),
            work=Mock(is_free=lambda _: True),
            jobs=Mock(),
            pod_groups=Mock(),
            metrics=Mock(),
            claims=BudgetClaims(cluster.state, lambda: 0.0),
            clock=lambda: 0.0,
            now=lambda: 0.0,
            on_answer=lambda: None,
        )
        preemptions.carry_out(Decision((stop,)), {}, groups)
        after = preemptions.apply(cluster.snapshot()).running
        assert {held.gang.uid for held in after if held.is_leaving} == stopping
        await preemptions.close()
