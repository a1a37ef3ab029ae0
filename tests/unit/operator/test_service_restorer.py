"""A running job whose Service no watch shows: how often it is looked for."""

from unittest.mock import AsyncMock, Mock

from bireme.core.settings import SchedulingSettings
from bireme.kube import wire
from bireme.kube.cluster_state import ClusterState
from bireme.testing import ManualClock
from bireme_operator.job_services import ServiceRestorer
from testbed.objects.facts import through_the_wire
from tests.unit.operator.lifecycle_cases import gang


class Desk:
    """The restorer, its clock, and one running job; ``finds`` says whether its Service is there."""

    def __init__(self) -> None:
        self.job, self.view = gang(rendezvous="torch")
        self.clock = ManualClock(100.0)
        self.state = ClusterState(SchedulingSettings())
        self.state.services.all_listed()
        self.work, self.actuator = Mock(), AsyncMock()
        self.restorer = ServiceRestorer(
            self.state, self.work, self.actuator, AsyncMock(), self.clock
        )
        self.find(True)

    def find(self, finds: bool) -> None:
        self.actuator.create_service.return_value = not finds

    def put(self) -> None:
        owner = {"uid": self.job.uid}
        made = {"metadata": {"name": self.job.key[1], "ownerReferences": [owner]}}
        self.state.services.put(self.job.key, through_the_wire(made, wire.MetadataOnly))

    async def looks(self, seconds: int) -> list[int]:
        """Let so many seconds pass; return in which it was looked for."""
        seen = []
        for second in range(seconds):
            if self.restorer.restore(self.job, self.view):
                seen.append(second)
                await self.work.start.call_args.args[1]
            self.clock.advance(1.0)
        return seen


async def test_a_service_that_lost_its_label_is_looked_for_ever_less_often() -> None:
    desk = Desk()
    assert await desk.looks(700) == [0, 5, 15, 35, 75, 155, 315, 635]
    # It is there with its label again, and then deleted.
    await desk.looks(600)
    desk.put()
    assert await desk.looks(1) == []
    desk.state.services.delete(desk.job.key)
    desk.find(False)
    assert await desk.looks(12) == [0, 5, 10]


async def test_a_longest_pause_ends_so_that_a_deletion_nobody_saw_is_noticed() -> None:
    desk = Desk()
    late = await desk.looks(4000)
    assert late[-1] - late[-2] == 600
