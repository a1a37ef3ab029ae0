"""The gates of a gang are lifted together, and the cache has seen it even where one stays."""

from typing import Any
from unittest.mock import AsyncMock, Mock

import msgspec
import pytest

from bireme.core.settings import SchedulingSettings
from bireme.kube import wire
from bireme.kube.client import ApiError
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import Member, PlanFacts
from bireme_operator.pod_groups import PodGroups
from testbed.objects.facts import gated_pod, through_the_wire

GROUP = ("default", "group")
MEMBERS = tuple(Member("worker", "n0", uid=f"{name}-uid") for name in "ab")
PLAN = PlanFacts(1, 0, "", "Pinned", 0.0, {}, {}, MEMBERS)
GONE = ApiError(404, "NotFound", "no such pod")
AT_9 = {"metadata": {**gated_pod("b")["metadata"], "resourceVersion": "9"}}
NO_ANSWER = ApiError(0, "ConnectionFailed", "the connection was broken")


async def released(patches: list[Any], read: Any) -> tuple[ApiError | None, AsyncMock]:
    """Release two pods; return the error, and what waits for the newest version of pods."""
    state = ClusterState(SchedulingSettings())
    for name in ("a", "b"):
        state.objects.put_member(("default", name), through_the_wire(gated_pod(name), wire.V1Pod))
    writes = Mock(patch_pod=AsyncMock(side_effect=patches), get_pod=AsyncMock(side_effect=[read]))
    waits = AsyncMock()
    given = ("work", "actuator", "guests", "events", "start_failures", "troubles")
    fields = dict.fromkeys(given, Mock())
    groups = PodGroups(state, Mock(wait_for_pods=waits), writes, clock=lambda: 0.0, **fields)
    try:
        await groups._release(GROUP, PLAN)
    except ApiError as error:
        return error, waits
    return None, waits


@pytest.mark.parametrize(
    ("patches", "read", "error", "newest"),
    [
        ([7, 8], None, None, 8),
        ([7, GONE], None, GONE, 7),
        ([GONE, 7], None, GONE, 7),
        ([7, NO_ANSWER], msgspec.json.encode(AT_9), NO_ANSWER, 9),
        ([7, NO_ANSWER], NO_ANSWER, NO_ANSWER, 7),
    ],
    ids=["both", "one is gone", "the first is gone", "no answer", "no answer to the read either"],
)
async def test_a_lifted_gate_is_known_before_anything_else_is_done_to_the_gang(
    patches: list[Any], read: Any, error: ApiError | None, newest: int
) -> None:
    found, waits = await released(patches, read)
    assert found is error
    waits.assert_awaited_once_with(newest)
