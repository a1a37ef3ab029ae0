"""Combined inter-job priority, after Du et al., EURASIP JWCN 2023:45, and the attained service.

    P = w_user*U + w_job*T + (w_wait*min(1, wait/W) + w_par*R) * G

The paper names four factors: user priority, job priority, longest wait, parallelism; their weights
are normalised to sum 1. It leaves their scales open; ours are independent of other waiting gangs,
so that an unrelated arrival never reorders the rest:

    U = userPriority / 100             of the queue, set by an administrator
    T = v / (v + job_priority_half)    v = value of the PriorityClass, negative counts as 0
    R = n / (n + parallelism_half)     n = replicas of the gang

T and R grow strictly and never reach 1, so no class value and no width saturates. W is the queue's
wait bound.

The paper does not cover users who state no priority. Run times are heavy-tailed: a gang with much
service will run for long, and the gangs behind it are mostly short. So service, in device-seconds,
reduces the unstated part of the priority, as Tiresias orders by it (Gu et al., NSDI'19):

    G = 1 below service_threshold, 1/20 from the threshold on, and a twentieth of that each time the
        service has grown eightfold

Steps of eight keep stops few, each of which costs the work since a checkpoint. On training worlds
they give shorter longest waits than doublings from twice the threshold. The factor is a twentieth,
because with the default weights wait and width together lie between 1/60 (one replica that has just
come) and 3/10. So among equal priorities, less service goes first. G is 1 for a gang that has not
run, so among those P is the paper's; with service_threshold = 0 it always is. Service never reduces
U and T: P stays above the stated part.

The preemption priority is w_user*U + w_job*T, which is stated: neither a long wait nor a wide gang
stops other gangs. Among gangs with an equal one, less service gives the higher priority. The
service counts in steps only, or gangs would stop each other without end. It does not count for a
waiting gang for which node pools can still grow: a node that comes in minutes costs less than the
work that a stop loses. And it stops no gang for a gang that has waited for less than
service_preemption_delay_seconds. A wait until waiting has cost as much as a stop is never more than
twice as expensive as the best choice in hindsight (ski rental; Karlin et al., Algorithmica 1988). A
stop costs preemption_cost_seconds, 15 minutes on average with a checkpoint every half hour. But on
training worlds, where much starts by itself within minutes or not at all, completion times are
level from 5 minutes to 15, and waits are shortest with 5. Service does not stop or shrink a gang
either that should end within preemption_cost_seconds: otherwise each job of a sweep of like ones
could be stopped just before its end.

Service is charged to submitters as well (:mod:`bireme.core.service`): otherwise splitting a
training into short jobs would always be first. Gangs of a submitter with more service than its
competitors go behind all others of their stated priority, and keep their order among themselves.
There are only two ranks of submitters: each step between two gangs costs stops, and an order of
submitters alone would put the shortest job of a busy one behind the longest of all others.

The intra-job half of the paper is :mod:`bireme.heuristics.packing`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Annotated, TypeAlias

import numpy as np

from bireme.core.bounds import Within
from bireme.core.gangs import Gang
from bireme.core.parameters import check_parameters
from bireme.core.placement import FreeCapacity
from bireme.core.policy import Ranked, ScoreFactor
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import devices, stops_from

_FACTORS = {
    "userPriority": "whose queue has a higher user priority",
    "jobPriority": "which has a higher priority class",
    "wait": "",
    "parallelism": "",
    "service": "which has had less service",
}
"""The names of the factors, with the claim of each."""

_SCORE_DECIMALS = 9
"""Scores are rounded before comparing, so that the last bits of a float never decide."""
_POD_GROUP = "PodGroup"
_SERVICE_FACTOR = 1 / 20
"""Factor of wait and width at the threshold, and again at every step of the service."""
_STEP_BITS = 3
"""Doublings in a step: a step is an eightfold of the service."""
_OVER_SERVED_STEPS = 16
"""More steps than any gang's service can take: that many eightfolds are 10^14 thresholds."""
_UNKNOWN_SERVICE = 0.98
"""The distance of a gang with unknown service: larger than for any known service."""
_ANY_SERVICE = 0.99
"""The distance of a gang that stops no gang for service; a lower stated priority is still farther
away."""
_SERVICE_UNIT = 10.0**-_SCORE_DECIMALS
"""The most that service takes off a preemption priority: stated ones differ by at least that."""


_DEFAULTS = SchedulingSettings()


class CombinedPriority:
    """Highest combined priority first: user, job, wait, parallelism, and the service so far.

    Source: Du et al., EURASIP JWCN 2023:45; Gu et al., Tiresias, NSDI'19, for the service.
    """

    keeps_equal_gangs_in_order = True

    def __init__(
        self,
        user_weight: Annotated[
            float | None, Within(0), "weight of the queue's userPriority, else as in the settings"
        ] = None,
        job_weight: Annotated[
            float | None, Within(0), "weight of the PriorityClass, else as in the settings"
        ] = None,
        wait_weight: Annotated[
            float | None,
            Within(0),
            "weight of the wait, as a share of the wait bound, else as in the settings",
        ] = None,
        parallelism_weight: Annotated[
            float | None, Within(0), "weight of the number of replicas, else as in the settings"
        ] = None,
        job_priority_half: Annotated[
            int | None,
            Within(1),
            "class value that counts as half of the highest priority, "
            f"else {_DEFAULTS.job_priority_half}",
        ] = None,
        parallelism_half: Annotated[
            int | None,
            Within(1),
            f"replicas that count as half of the widest, else {_DEFAULTS.parallelism_half}",
        ] = None,
        service_threshold: Annotated[
            int | None,
            Within(0),
            "device-seconds from which service counts, 0 for never, else as in the settings",
        ] = None,
        service_preemption_delay_seconds: Annotated[
            int | None,
            Within(0),
            "wait from which service may stop others, 0 for any, "
            f"else {_DEFAULTS.service_preemption_delay_seconds}",
        ] = None,
        preemption_cost_seconds: Annotated[
            int | None,
            Within(0),
            "time within which an expected end keeps service from stopping a gang, 0 for none, "
            "else as in the settings",
        ] = None,
    ) -> None:
        """Parameters that are None come from the settings.

        Raises:
            SettingError: a parameter is out of its bounds, or all weights are 0.
        """
        parameters = {
            "user_weight": user_weight,
            "job_weight": job_weight,
            "wait_weight": wait_weight,
            "parallelism_weight": parallelism_weight,
            "job_priority_half": job_priority_half,
            "parallelism_half": parallelism_half,
            "service_threshold": service_threshold,
            "service_preemption_delay_seconds": service_preemption_delay_seconds,
            "preemption_cost_seconds": preemption_cost_seconds,
        }
        check_parameters(type(self), **parameters)
        self._own = {name: value for name, value in parameters.items() if value is not None}
        self._with_own(SchedulingSettings())

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Return all gangs by descending P; a total order."""
        settings = self._with_own(snapshot.settings)
        scores = _Scores(snapshot, settings)
        sort_entry = sorted(map(scores.sort_entry, gangs), key=itemgetter(0))
        return [entry for _, entry in sort_entry]

    def lowest_preemption_priority(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> float:
        """Return the lowest preemption priority of ``gangs``; infinite without any."""
        return _Scores(snapshot, self._with_own(snapshot.settings)).lowest(gangs)

    def _with_own(self, settings: SchedulingSettings) -> SchedulingSettings:
        """Return ``settings`` with the parameters; SettingError if no weight is above 0."""
        return replace(settings, **self._own) if self._own else settings  # type: ignore[arg-type]


_Key: TypeAlias = tuple[float, int, float, bool, int, float, int, str]


class _Scores:
    """P in one snapshot, cached."""

    def __init__(self, snapshot: ClusterSnapshot, settings: SchedulingSettings) -> None:
        self._snapshot, self._settings = snapshot, settings
        self._weights = _weights(settings)
        # Thousands of gangs share few queues, classes and widths.
        self._priorities: dict[tuple[str, int], tuple[float, float, int]] = {}
        self._by_width: dict[int, float] = {}
        self._growing = _GrowingPools(snapshot) if snapshot.growable else None

    def sort_entry(self, gang: Gang) -> tuple[_Key, Ranked]:
        """Return ``gang`` with its score, and its sort key in front."""
        stated, rounded, bound_seconds = self._base_priority(gang)
        wait = min(1.0, self._snapshot.wait_seconds(gang) / bound_seconds)
        unstated = self._weights[2] * wait + self._width(gang)
        level, step = self._level(gang), self._step(gang)
        unstated *= _SERVICE_FACTOR**level
        score = round(stated + (0.0 if step else unstated), _SCORE_DECIMALS)
        explain = partial(_factors, gang, self._snapshot, self._settings)
        # Service and class values too large to differ in the rounded score still decide.
        tie = (not gang.interrupted, -gang.priority, gang.arrived, -gang.replicas, gang.uid)
        distance = self._behind(gang, level + step)
        claim = rounded - distance * _SERVICE_UNIT
        # A shrink loses no work, so it needs no delay. A gang that stops none for service has
        # nothing to wait for.
        begins = self._stops_from(gang) if distance < _UNKNOWN_SERVICE else None
        stop = None if begins is None else rounded - _ANY_SERVICE * _SERVICE_UNIT
        # Behind all others of its stated priority, an over-served gang keeps its order.
        among = -round(unstated, _SCORE_DECIMALS) if step else 0.0
        key = (-score, level + step, among, *tie)
        return key, Ranked(gang, score, explain, claim, stop, begins)

    def lowest(self, gangs: Sequence[Gang]) -> float:
        """Return the lowest preemption priority of ``gangs``; infinite without any."""
        stated = [self._base_priority(gang)[1] for gang in gangs]
        minimum = min(stated, default=math.inf)
        lowest = [gang for gang, priority in zip(gangs, stated, strict=True) if priority == minimum]
        distances = (self._behind(gang, self._level(gang) + self._step(gang)) for gang in lowest)
        return minimum - max(distances, default=0.0) * _SERVICE_UNIT

    def _level(self, gang: Gang) -> int:
        """Return the number of service steps of ``gang``, 1 at the threshold."""
        if not gang.attained_seconds and gang.uid not in self._snapshot.running_by_uid:
            return 0  # most gangs of a long queue
        return _level(_service(gang, self._snapshot), self._settings)

    def _step(self, gang: Gang) -> int:
        """Return the extra steps of a submitter with more than its share of service."""
        return _OVER_SERVED_STEPS if gang.user in self._snapshot.over_served else 0

    def _stops_from(self, gang: Gang) -> float | None:
        """Return when service begins to stop others for ``gang``; None without a delay."""
        settings = self._settings
        if not settings.service_threshold:
            return None
        return stops_from(gang, self._snapshot, settings.service_preemption_delay_seconds)

    def _behind(self, gang: Gang, level: int) -> float:
        """Return how far ``gang`` is behind others of its stated priority, from 0 to 1."""
        if not self._settings.service_threshold:
            return 0.0
        # A negative class counts as 0 in T, and must not stop a class of 0.
        if gang.priority < 0:
            return 1.0
        is_running = gang.uid in self._snapshot.running_by_uid
        if is_running and self._ends_soon(gang):
            return 0.0
        # The service of its pods is unknown: it would count as none, and the gang would stop all.
        if gang.kind == _POD_GROUP:
            return _UNKNOWN_SERVICE
        if self._growing is not None and not is_running and self._growing.take(gang):
            return _ANY_SERVICE
        return level / (level + 1)

    def _ends_soon(self, gang: Gang) -> bool:
        """Return whether the running ``gang`` should end so soon that it is not stopped."""
        if gang.estimated_seconds is None:
            return False
        # All its starts count, as for the service; a gang that has outrun its estimate may run on.
        remaining = gang.estimated_seconds - self._snapshot.attained_seconds(gang)
        return 0 < remaining <= self._settings.preemption_cost_seconds

    def _base_priority(self, gang: Gang) -> tuple[float, float, int]:
        """Return w_user*U + w_job*T, the same rounded, and the wait bound."""
        key = (gang.queue, gang.priority)
        entry = self._priorities.get(key)
        if entry is None:
            user, job, *_ = _values(gang, self._snapshot, self._settings)
            exact = self._weights[0] * user + self._weights[1] * job
            bound_seconds = self._snapshot.wait_bound_seconds(gang)
            entry = self._priorities[key] = (exact, round(exact, _SCORE_DECIMALS), bound_seconds)
        return entry

    def _width(self, gang: Gang) -> float:
        """w_par*R."""
        width = self._by_width.get(gang.replicas)
        if width is None:
            width = self._weights[3] * _values(gang, self._snapshot, self._settings)[3]
            self._by_width[gang.replicas] = width
        return width


class _GrowingPools:
    """Node pools that can still get new nodes in time."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        pools = [
            pool
            for pool in snapshot.growable
            if pool.room + pool.coming and not pool.is_late(snapshot.now)
        ]
        self._snapshot = snapshot
        self._nodes = np.array([pool.room + pool.coming for pool in pools], dtype=np.int64)
        templates = [replace(p.template, name=f"{index:06}") for index, p in enumerate(pools)]
        table = snapshot.nodes.with_nodes(templates)
        self._one_of_each = FreeCapacity(table, table.fixed)
        # Thousands of gangs have few shapes.
        self._take: dict[object, bool] = {}

    def take(self, gang: Gang) -> bool:
        """Return whether new nodes alone have room for every task of ``gang``, each separately."""
        shape = self._snapshot.shape(gang)
        if shape not in self._take:
            self._take[shape] = all(
                int(self._one_of_each.replicas(task) @ self._nodes) >= task.replicas
                for task in gang.tasks
            )
        return self._take[shape]


def _service(gang: Gang, snapshot: ClusterSnapshot) -> float:
    """Return the device-seconds that ``gang`` has had, at its requested size."""
    # At its present size they would fall when an elastic gang shrinks, and it would be first again.
    return snapshot.attained_seconds(gang) * devices(gang, snapshot)


def _level(served: float, settings: SchedulingSettings) -> int:
    threshold = settings.service_threshold
    if not 0 < threshold <= served:
        return 0
    steps = 1 + math.floor(math.log2(served / threshold) / _STEP_BITS)
    return min(steps, _OVER_SERVED_STEPS - 1)


def _weights(settings: SchedulingSettings) -> tuple[float, ...]:
    """The weights of U, T, the wait and R; they sum to 1."""
    weights = (
        settings.user_weight,
        settings.job_weight,
        settings.wait_weight,
        settings.parallelism_weight,
    )
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def _values(
    gang: Gang, snapshot: ClusterSnapshot, settings: SchedulingSettings
) -> tuple[float, float, float, float]:
    """Return U, T, the elapsed share of the wait bound, and R."""
    priority = max(0, gang.priority)
    return (
        _queue(gang, snapshot).user_priority / 100,
        priority / (priority + settings.job_priority_half),
        min(1.0, snapshot.wait_seconds(gang) / snapshot.wait_bound_seconds(gang)),
        gang.replicas / (gang.replicas + settings.parallelism_half),
    )


def _queue(gang: Gang, snapshot: ClusterSnapshot) -> Queue:
    """Return the queue of ``gang``; a default one for a running gang whose queue was deleted."""
    return snapshot.queues.get(gang.queue) or Queue(gang.queue)


def _factors(
    gang: Gang, snapshot: ClusterSnapshot, settings: SchedulingSettings
) -> tuple[ScoreFactor, ...]:
    queue = _queue(gang, snapshot)
    wait, bound_seconds = snapshot.wait_seconds(gang), snapshot.wait_bound_seconds(gang)
    served, is_over = _service(gang, snapshot), gang.user in snapshot.over_served
    level = _level(served, settings)
    shared = snapshot.service.get(gang.user, 0.0)
    note = f"; {shared:.0f} of its namespace, more than the others'" if is_over else ""
    measured = (
        f"{queue.user_priority} of 100 in queue {queue.name}",
        f"class value {gang.priority}",
        f"{wait:.0f} s of {bound_seconds} s",
        f"{gang.replicas} replicas",
        f"{served:.0f} device-seconds{note}",
    )
    values, weights = _values(gang, snapshot, settings), _weights(settings)
    unstated = weights[2] * values[2] + weights[3] * values[3]
    lost_share = 1.0 if is_over else 1 - _SERVICE_FACTOR**level
    weighted = (*values, lost_share), (*weights, -unstated)
    return tuple(map(ScoreFactor, _FACTORS, measured, *weighted, _FACTORS.values()))
