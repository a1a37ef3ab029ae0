"""The service of namespaces as an operator counts it, and as a new leader finds it again."""

import pytest

from bireme.kube import quantities
from testbed.objects.cluster_state import PLAN, ClusterStateFeed
from testbed.objects.facts import CREATED

HOUR = 3600.0
HALF_LIFE = 604_800.0
GPUS = 4


def moment(seconds: float) -> str:
    return quantities.format_timestamp(CREATED + seconds)


def test_what_a_namespace_holds_is_charged_also_when_its_job_is_deleted() -> None:
    cluster = ClusterStateFeed()
    cluster.job(plan=PLAN)
    assert cluster.state.snapshot(CREATED).service == {}
    cluster.job_gone()
    found = cluster.state.snapshot(CREATED + HOUR).service
    assert found == pytest.approx({"default": GPUS * HOUR}, rel=0.01)
    later = cluster.state.snapshot(CREATED + HOUR + HALF_LIFE).service
    assert later == pytest.approx({"default": GPUS * HOUR / 2}, rel=0.01)


@pytest.mark.parametrize(
    ("status", "hours"),
    [
        pytest.param(
            {
                "phase": "Succeeded",
                "runSeconds": 2 * HOUR,
                "admittedTime": moment(0.0),
                "completionTime": moment(HOUR),
            },
            3.0,
            id="ended",
        ),
        pytest.param({"phase": "Pending", "runSeconds": 2 * HOUR}, 2.0, id="waits-again"),
        pytest.param({"phase": "Pending"}, 0.0, id="new"),
    ],
)
def test_a_new_leader_charges_what_the_jobs_say_that_exist(
    status: dict[str, object], hours: float
) -> None:
    cluster = ClusterStateFeed()
    cluster.job(status=status)
    found = cluster.state.snapshot(CREATED + HOUR).service.get("default", 0.0)
    assert found == pytest.approx(GPUS * hours * HOUR, rel=0.01)
    assert cluster.state.snapshot(CREATED + HOUR).service.get("default", 0.0) == found, "once"
