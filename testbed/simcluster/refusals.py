"""Admission that goes wrong for a while, and a scheduler that says nothing of single gangs.

Webhooks are down, policies deny what they should not, and something writes into the pods of jobs
what keeps them from being bound. Dry runs see most of it. All of it ends with the calm.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from bireme.kube import names
from bireme_lab.embedded.api.errors import ApiRefusal
from testbed.fakeapi.store import Key, Object
from testbed.history.records import Record
from testbed.simcluster import objects
from testbed.simcluster.network import Part
from testbed.simcluster.objects import JOBS, PODS
from testbed.simcluster.scheduler import Scheduler
from testbed.simcluster.world import World

_PAUSE_SECONDS = (2.0, 30.0)
_ADMISSION_SECONDS = (3.0, 90.0)
_SILENCE_SECONDS = (60.0, 200.0)
BIND_TIMEOUT_SECONDS = 30.0
"""Of operators where the scheduler passes gangs over: it is to happen more than once."""
_DOWN = (500, 502, 503, 504, 404, 429)
_DENIES = (400, 403, 413, 422, 500)


def _other_scheduler(pod: Object) -> None:
    pod["spec"]["schedulerName"] = "yunikorn"


def _gated(pod: Object) -> None:
    pod["spec"]["schedulingGates"] = [{"name": "example.com/budget"}]


def _grouped(pod: Object) -> None:
    pod["spec"]["schedulingGroup"] = {"podGroupName": "ring"}


def _unlabelled(pod: Object) -> None:
    pod["metadata"]["labels"].pop(names.INDEX_LABEL)


_ALTERATIONS: tuple[Callable[[Object], None], ...] = (
    _other_scheduler,
    _gated,
    _grouped,
    _unlabelled,
)


@dataclass(eq=False)
class AdmissionFaults(Part):
    """What admission of ``namespace`` does wrong, one thing at a time, until the calm."""

    world: World
    namespace: str
    _fault: Callable[[Object, bool], None] | None = None

    def start(self) -> None:
        if self.world.admission_goes_wrong:
            self.server.store.admission.setdefault("Pod", []).append(self._admit)

    async def run(self) -> None:
        while self.world.admission_goes_wrong:
            await asyncio.sleep(self.chance.uniform(*_PAUSE_SECONDS))
            self._fault = self._drawn()
            await asyncio.sleep(self.chance.uniform(*_ADMISSION_SECONDS))
            self._end()

    def clear(self) -> None:
        self._end()

    def _end(self) -> None:
        if self._fault is not None:
            self.tell("admission is as it should be")
        self._fault = None

    def _admit(self, pod: Object, is_dry_run: bool) -> None:
        if self._fault is not None and pod["metadata"]["namespace"] == self.namespace:
            self._fault(pod, is_dry_run)

    def _drawn(self) -> Callable[[Object, bool], None]:
        kind = self.chance.choice(("down", "denies", "alters", "alters"))
        in_dry_runs = self.chance.random() < 0.7
        if kind == "alters":
            alter = self.chance.choice(_ALTERATIONS)
            self.tell(f"admission alters pods of jobs: {alter.__name__}, dry runs: {in_dry_runs}")
            return lambda pod, is_dry_run: (
                alter(pod) if _is_of_job(pod) and (in_dry_runs or not is_dry_run) else None
            )
        status = self.chance.choice(_DOWN if kind == "down" else _DENIES)
        words = (
            'failed calling webhook "pods.example.com": connection refused'
            if kind == "down"
            else "ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no"
        )
        share = self.chance.choice((1, 1, 2))
        self.tell(f"admission {kind}, {status}, one of {share} pods, dry runs: {in_dry_runs}")

        def fail(pod: Object, is_dry_run: bool) -> None:
            index = sum(map(ord, pod["metadata"]["name"]))
            if index % share == 0 and (in_dry_runs or not is_dry_run):
                raise ApiRefusal(status, "Injected", words)

        return fail


def _is_of_job(pod: Object) -> bool:
    return bool(objects.label(pod, "training-job"))


@dataclass(eq=False)
class Silences(Part):
    """Gangs that the scheduler passes over for a while, one after another."""

    world: World
    scheduler: Scheduler
    past: list[tuple[Key, float, float]] = field(default_factory=list)
    """Every gang that was passed over, from when and until when, in seconds."""
    _gang: Key | None = None
    _began: float = 0.0

    def start(self) -> None:
        """Nothing is silent before :meth:`run`."""

    async def run(self) -> None:
        while self.world.scheduler_is_silent:
            await asyncio.sleep(self.chance.uniform(*_PAUSE_SECONDS))
            jobs = sorted(self.server.store.collection(JOBS).objects)
            # One that is half on its nodes would be partial for as long as silence may last.
            waiting = [job for job in jobs if not self._has_begun(job)]
            if not waiting:
                continue
            self._gang, self._began = self.chance.choice(waiting), self.loop.time()
            self.scheduler.passes_over(self._gang)
            self.tell(f"the scheduler says nothing of {self._gang[1]}")
            await asyncio.sleep(self.chance.uniform(*_SILENCE_SECONDS))
            self.clear()

    def _has_begun(self, job: Key) -> bool:
        pods = self.server.store.collection(PODS).objects.items()
        return any(
            key[0] == job[0] and objects.label(pod, "pod-group") == job[1] for key, pod in pods
        )

    def clear(self) -> None:
        if self._gang is not None:
            self.tell(f"the scheduler sees {self._gang[1]} again")
            self.past.append((self._gang, self._began, self.loop.time()))
        self._gang = None
        self.scheduler.passes_over(None)


@dataclass(slots=True)
class _Start:
    """One plan of a gang, from when until when it stood in the status, and why it went."""

    gang: Key
    epoch: int
    generation: int
    began: float
    ended: float = float("inf")
    reason: str = ""


def _starts(records: Iterable[Record]) -> list[_Start]:
    found: list[_Start] = []
    current: dict[Key, _Start] = {}
    for record in (each for each in records if each.kind == "TrainingJob"):
        status = record.manifest.get("status") or {}
        plan = status.get("plan") if record.change != "DELETED" else None
        known = current.get(record.key)
        if known is not None and plan is None:
            known.ended, known.reason = record.seconds, str(status.get("reason"))
            del current[record.key]
        elif known is None and plan is not None:
            generation = record.manifest["metadata"]["generation"]
            made = _Start(record.key, int(plan["epoch"]), generation, record.seconds)
            current[record.key] = made
            found.append(made)
    return found


_TIMEOUT_SECONDS = BIND_TIMEOUT_SECONDS - 5.0
_LAG_SECONDS = 16.0
_MIN_PAUSE_SECONDS = 45.0


def held_in_vain(
    records: Iterable[Record], silences: Iterable[tuple[Key, float, float]]
) -> Iterator[str]:
    """Yield gangs that took places again at once while the scheduler passed them over alone.

    It bound another gang that the same leader planned in the same time, early enough to be seen.
    """
    records = list(records)
    starts = _starts(records)
    binds = [
        (record.seconds, (record.key[0], objects.label(record.manifest, "pod-group")))
        for record in records
        if record.kind == "Pod" and objects.node_of(record.manifest)
    ]

    def is_shown(start: _Start) -> bool:
        seen_by = start.ended - _LAG_SECONDS
        others = (
            each
            for each in starts
            if each.gang != start.gang and each.epoch == start.epoch
            if start.began + 1.0 < each.began < seen_by
        )
        return any(
            gang == each.gang and each.began <= at < seen_by
            for each in others
            for at, gang in binds
        )

    for gang, began, ended in silences:
        own = [each for each in starts if each.gang == gang and began <= each.began < ended]
        for start, following in itertools.pairwise(own):
            is_same = (start.epoch, start.generation) == (following.epoch, following.generation)
            is_over = start.ended - start.began >= _TIMEOUT_SECONDS and start.ended < ended
            pause = following.began - start.ended
            if is_same and is_over and pause < _MIN_PAUSE_SECONDS and is_shown(start):
                words = f"planned again {pause:.0f} s after {start.reason}, though others are bound"
                yield f"held-in-vain: {gang[1]} is {words} ({following.began:.2f} s)"
                return
