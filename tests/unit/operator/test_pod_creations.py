"""Creation of a gang's pods: how many at once, and what an error of one means for the others."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import msgspec
import pytest

from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.kube.client import ApiError
from bireme.kube.cluster_state import ClusterState
from bireme_operator.actuator import Actuator
from bireme_operator.rejections import AdmissionRejected
from bireme_operator.writes import Writes
from testbed.objects.facts import a_job, a_plan
from testbed.scenario.manifests import task

REPLICAS, AT_ONCE = 12, 3
JOB = a_job(task("worker", REPLICAS))
PLAN = a_plan(JOB, ("n0", "n1"))
FORBIDDEN = ApiError(403, "Forbidden", "over quota")
BROKEN = ApiError(500, "InternalError", "no")


class PodWrites:
    """Takes the place of ``Writes``; creations whose number is in ``errors`` fail."""

    def __init__(self, errors: Mapping[int, ApiError]) -> None:
        self.concurrency = AT_ONCE
        self.errors = errors
        self.names: list[str] = []
        self.open = self.most = 0

    async def create_pod(self, namespace: str, build: Callable[[], Mapping[str, Any]]) -> bytes:
        number = len(self.names)
        pod = build()
        self.names.append(pod["metadata"]["name"])
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0)
        self.open -= 1
        if number in self.errors:
            raise self.errors[number]
        meta = {**pod["metadata"], "uid": str(number), "resourceVersion": str(100 - number)}
        return msgspec.json.encode({**pod, "metadata": meta})


async def created(errors: Mapping[int, ApiError]) -> tuple[PodWrites, Exception | None, AsyncMock]:
    """Create all pods; return the writes, the error, and what waits for the newest version."""
    writes, waits = PodWrites(errors), AsyncMock()
    state = ClusterState(SchedulingSettings())
    actuator = Actuator(state, Mock(wait_for_pods=waits), cast(Writes, writes), lambda _: "")
    try:
        await actuator.create_pods(JOB, PLAN, PLAN.members)
    except (ApiError, AdmissionRejected) as error:
        return writes, error, waits
    return writes, None, waits


async def test_pods_are_created_as_many_at_once_as_writes_are_allowed() -> None:
    writes, error, waits = await created({})
    assert error is None
    assert writes.names == [f"job-worker-{index}" for index in range(REPLICAS)]
    assert writes.most == AT_ONCE
    waits.assert_awaited_once_with(100)


async def test_the_first_refusal_stops_the_creations_that_have_not_begun() -> None:
    writes, error, waits = await created({4: FORBIDDEN})
    assert isinstance(error, AdmissionRejected)
    assert (error.reason, str(error)) == (Reason.PODS_REFUSED, "over quota")
    assert 5 <= len(writes.names) <= 4 + AT_ONCE
    waits.assert_awaited_once_with(100)  # those that were created are about to be deleted


@pytest.mark.parametrize("errors", [{0: BROKEN}, {2: BROKEN, 7: BROKEN}])
async def test_after_any_other_error_the_rest_is_created_and_the_error_told(
    errors: Mapping[int, ApiError],
) -> None:
    writes, error, _ = await created(errors)
    assert len(writes.names) == REPLICAS
    assert error is BROKEN


async def test_a_refusal_outweighs_an_error_before_it() -> None:
    _, error, _ = await created({0: BROKEN, 4: FORBIDDEN})
    assert isinstance(error, AdmissionRejected)
