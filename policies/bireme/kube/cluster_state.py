"""State of a cluster: the watched objects, the rooms that read them, and the core's snapshot.

Nothing here performs I/O or decides. The operator and the extender have one state each, filled with
the kinds they need. A lost state is rebuilt from the API server. The cost of a snapshot grows with
the changes: only gangs and nodes that changed are derived again.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from bireme.core.gangs import Gang
from bireme.core.running import RunningGang
from bireme.core.service import ServiceLedger
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import allocations
from bireme.kube.changes import Changes
from bireme.kube.cluster_usage import ClusterUsage
from bireme.kube.devices import Devices
from bireme.kube.gang_demands import GangDemands
from bireme.kube.gang_views import GangViews, Reserved
from bireme.kube.job_services import JobServices
from bireme.kube.mutations import Mutations
from bireme.kube.node_cache import NodeCache
from bireme.kube.policy_source import SchedulingPolicies
from bireme.kube.resource_quotas import ResourceQuotas
from bireme.kube.rule_occupants import RuleOccupants
from bireme.kube.run_times import RunTimes, earlier_service
from bireme.kube.running_gangs import RunningGangs
from bireme.kube.tenancy import Tenancy
from bireme.kube.volumes import Volumes
from bireme.kube.waiting_gangs import WaitingGangCache
from bireme.kube.watched_objects import OnError, WatchedObjects, raise_error


class ClusterState:
    """The watched objects of a cluster and all that is derived from them.

    Attributes:
        changes: The changes of the objects, for each reader.
        tenancy: Queues, namespaces and priority classes.
        policies: SchedulingPolicies, which decide instead of the settings or as shadows.
        run_times: Run times and nodes of finished jobs.
        mutations: Changes that admission makes to the pods of jobs.
        quotas: ResourceQuotas.
        services: Services of jobs.
        nodes: Nodes, and the table of them.
        objects: Jobs, PodGroups and pods.
        views: The plan of each gang with its pods.
        demands: Demands of volumes, devices, quotas and affinity rules on gangs.
        waiting: Gangs that wait for places.
        running: Gangs that hold places.
        usage: Usage of nodes and quotas.

    Args:
        on_change: Called after every change that can matter to a decision.
        policies: The SchedulingPolicies to share; by default a new, empty cache.
    """

    def __init__(
        self,
        settings: SchedulingSettings,
        on_change: Callable[[], None] = lambda: None,
        policies: SchedulingPolicies | None = None,
    ) -> None:
        # 1. Watched objects.
        self.settings = settings
        self.changes = changes = Changes(on_change)
        self.tenancy = tenancy = Tenancy(changes.note_tenancy)
        self.policies = policies or SchedulingPolicies()
        self.run_times = run_times = RunTimes()
        self.volumes = volumes = Volumes(changes.note)
        self.devices = devices = Devices(changes.note)
        self.mutations = Mutations()
        self.quotas = quotas = ResourceQuotas(changes.note)
        self.services = JobServices(changes.requeue)
        self.nodes = nodes = NodeCache(settings, changes, volumes, devices)
        self.objects = objects = WatchedObjects(
            settings, changes, nodes, tenancy, volumes, self.mutations, run_times
        )

        # 2. What is derived from them.
        self.views = views = GangViews(objects, changes)
        self.demands = demands = GangDemands(objects, nodes, volumes, devices, quotas)
        self.waiting = WaitingGangCache(objects, demands, nodes, tenancy, run_times)
        self.running = running = RunningGangs(
            objects, views, demands, nodes, tenancy, run_times, changes
        )
        self._occupants = RuleOccupants(objects, running, demands, nodes, volumes)
        self.usage = ClusterUsage(
            objects, views, running, demands, nodes, volumes, devices, quotas, changes
        )
        self._service = ServiceLedger(
            settings.service_half_life_seconds, settings.known_accelerators
        )

    def snapshot(
        self,
        now: float,
        reserved: Reserved | None = None,
        waiting: Sequence[Gang] | None = None,
        on_error: OnError = raise_error,
    ) -> ClusterSnapshot:
        """Return the cluster at ``now``; gangs that are being admitted count as placed.

        ``waiting`` are the gangs to decide on, by default all without an assumed plan.
        """
        reserved, table = reserved or {}, self.nodes.table
        self.running.renew(reserved, on_error)
        used = self.usage.of_snapshot(table)
        strays = self.running.pods_without_plan()
        if waiting is None:
            waiting = self.waiting.gangs(reserved, on_error=on_error)
        running = self.running.gangs(strays)
        return ClusterSnapshot(
            now=now,
            nodes=table,
            used=used,
            waiting=tuple(waiting),
            queues=dict(self.tenancy.queues),
            queue_usage=allocations.queue_usage(
                self.running.allocations, chain.from_iterable(strays.values())
            ),
            settings=self.settings,
            running=running,
            quotas=self.usage.quotas(),
            occupants=self._occupants.of_gangs(waiting, running, table),
            finished_runs=self.run_times.finished,
            service=self._service_at(now, running),
        )

    def _service_at(self, now: float, running: Sequence[RunningGang]) -> Mapping[str, float]:
        """Return the service of each namespace, which grows by ``running`` from ``now`` on."""
        if self._service.is_new:
            for job in self.objects.jobs.values():
                device_seconds, ended_at = earlier_service(
                    job, now, self.settings.known_accelerators
                )
                self._service.add(job.key[0], device_seconds, ended_at, now)
        self._service.observe(running, now)
        return self._service.at(now)
