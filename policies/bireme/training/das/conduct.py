"""The papers' way to schedule, in the place of the scheduling cycle: whoever fits starts now.

DAS and its rivals keep no places for anybody: they go through the line once and start every job
that fits. :func:`start_now` does that with the parts of a Policy, so that the simulator runs the
paper's setting; with the cycle in its place (the option ``cycle=rails``) it runs what
the operator does.
"""

from typing import Final

from bireme.core.capacity import FreeCapacity
from bireme.core.decision import Action, Admit, Decision
from bireme.core.gangs import Gang
from bireme.core.policy import Policy
from bireme.core.resources import IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube.names import GPU
from bireme.simulator.conduct import Conduct


def start_now(snapshot: ClusterSnapshot, policy: Policy) -> Decision:
    """Every waiting gang that fits when its turn comes, in the policy's order."""
    capacity = FreeCapacity(snapshot.nodes, snapshot.used)
    column = snapshot.nodes.axis.names.index(GPU)
    waiting = [gang for gang in snapshot.waiting if _fits(gang, capacity.free[:, column])]
    if not waiting:
        return Decision()
    actions: list[Action] = []
    for entry in policy.orderer.order(snapshot.waiting, snapshot):
        if not _fits(entry.gang, capacity.free[:, column]):
            continue
        placement = policy.placer.place(entry.gang, capacity)
        if placement is not None:
            capacity.take(entry.gang, placement)
            actions.append(Admit(entry.gang, placement, entry, message=""))
    return Decision(tuple(actions))


def _fits(gang: Gang, free_gpus: IntArray) -> bool:
    """Whether there are GPUs enough, wherever they are: spares the policy hopeless questions."""
    return gang.demand.get(GPU, 0) <= int(free_gpus.sum())


START_NOW: Final = Conduct(decide=start_now, takes_shortcuts=False)
"""Without shortcuts there is a cycle at every event, so that no end of a run is seen late."""
