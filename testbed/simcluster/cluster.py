"""Everything of one simulated cluster, put together from a seed."""

import asyncio
from collections.abc import MutableMapping
from dataclasses import replace
from random import Random
from typing import Any

from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.settings import SchedulingSettings
from bireme.kube import quantities
from bireme.testing import a_node
from bireme_lab.embedded.api.errors import ApiRefusal
from testbed.fakeapi.recording import recorded
from testbed.fakeapi.store import Object, Store
from testbed.history.records import Key
from testbed.objects.facts import node_manifest
from testbed.simcluster import objects
from testbed.simcluster.autoscaler import Autoscaler
from testbed.simcluster.controllers import Controllers
from testbed.simcluster.endings import Endings
from testbed.simcluster.gates import Gates
from testbed.simcluster.kubelets import Kubelets
from testbed.simcluster.maintenance import Maintenance
from testbed.simcluster.network import WORLD, ApiServer, NetworkConditions
from testbed.simcluster.node_faults import NodeFaults
from testbed.simcluster.objects import GROUPS, JOBS, NODE_POOLS, NODES, PODS, QUEUES
from testbed.simcluster.processes import (
    EPOCH_SECONDS,
    ExtenderProcess,
    OperatorProcess,
    Process,
)
from testbed.simcluster.refusals import (
    BIND_TIMEOUT_SECONDS,
    AdmissionFaults,
    Silences,
)
from testbed.simcluster.rivals import Rivals
from testbed.simcluster.scheduler import Scheduler
from testbed.simcluster.standstill import Standstills
from testbed.simcluster.taints import Taints
from testbed.simcluster.virtual import PROCESS, VirtualLoop
from testbed.simcluster.world import World

KINDS = {
    NODES: "Node",
    PODS: "Pod",
    JOBS: "TrainingJob",
    GROUPS: "PodGroup",
    QUEUES: "Queue",
    NODE_POOLS: "NodePool",
}
SCHEDULING = SchedulingSettings(
    min_runtime_seconds=10, resize_settle_seconds=10, eviction_budget=2, eviction_backoff_seconds=60
)
SPACE = "team"
"""Namespace of everything that users submit."""
RESTART_SECONDS = (1.0, 15.0)
_MODELS = ("Tesla-V100-SXM2-32GB", "NVIDIA-H100-80GB-HBM3")
_POOL_CHANCE = 0.4
"""Share of clusters with a node pool that grows and shrinks."""


class SimulatedCluster:
    """Nodes, an API server, a scheduler, two operators, an extender, and their story.

    Its ``world`` is drawn where none is given.
    """

    def __init__(self, seed: int, loop: VirtualLoop, world: World | None = None) -> None:
        self.seed = seed
        self.loop = loop
        self.world = World.drawn(self.chance("world")) if world is None else world
        self.story: list[tuple[float, str]] = []
        self.errors: list[str] = []
        """Errors that the programs under test logged."""
        self.disturbed: set[Key] = set()
        """Gangs that lost a replica before they were Running, by others."""
        self.removed: set[Key] = set()
        """Jobs that their user deleted."""
        self.calm_seconds = float("inf")
        """When the last fault ended."""
        self.conditions = NetworkConditions(self.chance("weather"))
        self.store = Store(self._date)
        self.store.lingers = objects.lingers
        self.records = recorded(self.store, KINDS, loop.time)
        self.server = ApiServer(self.store, self.conditions, loop)
        drawn = self.chance("processes")
        self.operators = [
            OperatorProcess(self.server, drawn, self.tell, name, SCHEDULING)
            for name in ("operator-a", "operator-b")
        ]
        drawn = self.chance("rivals")
        self.rivals = Rivals(self.server, drawn, self.tell, self.world, self.disturb)
        self.taints = Taints(self.server, self.chance("taints"), self.tell, self.world)
        drawn = self.chance("maintenance")
        self.maintenance = Maintenance(self.server, drawn, self.tell, self.world, self.disturb)
        self._models = self.chance("models")
        self.gates = Gates(self.server, self.chance("gates"), self.tell, self.world, SPACE)
        drawn = self.chance("endings")
        self.endings = Endings(self.server, drawn, self.tell, self.world, self.disturb)
        if self.world.images_hang:
            # The usual limit is longer than most runs.
            for operator in self.operators:
                operator.settings = replace(operator.settings, start_timeout_seconds=90)
        if self.world.scheduler_is_silent:
            for operator in self.operators:
                seconds = BIND_TIMEOUT_SECONDS
                operator.settings = replace(operator.settings, bind_timeout_seconds=seconds)
        self.standstills = Standstills(self.server, self.operators)
        self.extender = ExtenderProcess(self.server, drawn, self.tell, "extender", SCHEDULING)
        drawn = self.chance("kubelets")
        faults = self.chance("node-faults")
        self.node_faults = NodeFaults(self.server, faults, self.tell, self.world)
        self.kubelets = Kubelets(self.server, drawn, self.tell, self.node_faults)
        self.controllers = Controllers(self.server, drawn, self.tell, self.kubelets, self.disturb)
        drawn = self.chance("scheduler")
        self.scheduler = Scheduler(self.server, drawn, self.tell, self.extender)
        parts = self.server, self.chance("admission-faults"), self.tell, self.world
        self.admission_faults = AdmissionFaults(*parts, SPACE)
        parts = self.server, self.chance("silences"), self.tell, self.world
        self.silences = Silences(*parts, self.scheduler)
        drawn = self.chance("autoscaler")
        has_pool = drawn.random() < _POOL_CHANCE
        self.autoscaler = Autoscaler(self.server, drawn, self.tell) if has_pool else None

    def chance(self, use: str) -> Random:
        """Return a source of chance of its own for every use."""
        # A use that is renamed draws anew in every seed, also in those kept for bugs once found.
        return Random(f"{self.seed}/{use}")  # noqa: S311  # replays, not secrets

    def _date(self) -> str:
        return quantities.format_timestamp(EPOCH_SECONDS + self.loop.time())

    def tell(self, text: str) -> None:
        self.story.append((self.loop.time(), text))

    def log(self, _: Any, level: str, event: MutableMapping[str, Any]) -> str:
        """Structlog processor that adds log lines of processes to the story."""
        words = " ".join(f"{name}={value}" for name, value in event.items() if name != "event")
        line = f"{PROCESS.get()} says {event.get('event')} {words}"
        self.tell(line)
        if level in ("error", "exception", "critical"):
            self.errors.append(f"{line} ({self.loop.time():.2f} s)")
        return ""

    def disturb(self, pod: Object) -> None:
        """Note a pod taken away: an operator that did not see it cannot know it was there."""
        gang = (pod["metadata"]["namespace"], objects.label(pod, "pod-group"))
        job = self.store.collection(JOBS).objects.get(gang)
        if job is not None and objects.node_of(pod) and objects.phase(job) != "Running":
            self.disturbed.add(gang)

    # --- furniture -------------------------------------------------------------------------

    def put(self, resource: str, manifest: Object, namespace: str = "") -> bool:
        """Create an object, status included; False when the name is taken."""
        key = (namespace, manifest["metadata"]["name"])
        try:
            self.store.create(resource, key, manifest)
        except ApiRefusal:
            return False
        return True

    def add_node(self, name: str) -> bool:
        rack = f"r{int(name.removeprefix('n')) % 2}"
        labels = {}
        if self.world.gpus_differ:
            labels[GPU_MODEL_LABEL] = self._models.choice(_MODELS)
        return self.put(NODES, node_manifest(a_node(name, rack=rack, labels=labels)))

    # --- processes -------------------------------------------------------------------------

    @property
    def processes(self) -> tuple[Process, ...]:
        return (*self.operators, self.extender)

    @property
    def unkind(
        self,
    ) -> tuple[
        NodeFaults | Rivals | Taints | Maintenance | Gates | AdmissionFaults | Silences | Endings,
        ...,
    ]:
        """What the world draws beside faults: each runs until the calm, and is then cleared."""
        drawn = (self.node_faults, self.rivals, self.taints, self.maintenance, self.gates)
        return (*drawn, self.admission_faults, self.silences, self.endings)

    def start(self) -> None:
        self.standstills.start()
        self.kubelets.start()
        self.controllers.start()
        for unkind in self.unkind:
            unkind.start()
        self.scheduler.start()
        if self.autoscaler is not None:
            self.autoscaler.start()
        for process in self.processes:
            self.loop.create_task(self._keep(process), context=WORLD.copy())

    async def _keep(self, process: Process) -> None:
        """Restart a container that has ended, as its kubelet would."""
        chance = self.chance(process.name)
        while True:
            if not process.is_up:
                process.start()
                self.tell(f"{process.name} starts")
            while process.is_up:
                await asyncio.sleep(0.5)
            self.tell(f"{process.name} has ended")
            await asyncio.sleep(chance.uniform(*RESTART_SECONDS))

    async def stop(self) -> None:
        self.scheduler.stop()
        for process in self.processes:
            await process.kill()
