"""Admission that goes wrong for a while, and a scheduler that says nothing of single gangs.

Webhooks are down, policies deny what they should not, and something writes into the pods of jobs
what keeps them from being bound. Dry runs see most of it. All of it ends with the calm.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from bireme.kube import names
from tests.support.fakeapi.store import Object, Refusal
from tests.support.simcluster import objects
from tests.support.simcluster.network import Part
from tests.support.simcluster.objects import JOBS, PODS
from tests.support.simcluster.scheduler import Scheduler
from tests.support.simcluster.world import World

_PAUSE_SECONDS = (2.0, 30.0)
_ADMISSION_SECONDS = (3.0, 90.0)
_SILENCE_SECONDS = (30.0, 200.0)
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
                raise Refusal(status, "Injected", words)

        return fail


def _is_of_job(pod: Object) -> bool:
    return bool(objects.label(pod, "training-job"))


@dataclass(eq=False)
class Silences(Part):
    """Gangs that the scheduler passes over for a while, one after another."""

    world: World
    scheduler: Scheduler
    _gang: tuple[str, str] | None = field(default=None)

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
            self._gang = self.chance.choice(waiting)
            self.scheduler.passes_over(self._gang)
            self.tell(f"the scheduler says nothing of {self._gang[1]}")
            await asyncio.sleep(self.chance.uniform(*_SILENCE_SECONDS))
            self.clear()

    def _has_begun(self, job: tuple[str, str]) -> bool:
        pods = self.server.store.collection(PODS).objects.items()
        return any(
            key[0] == job[0] and objects.label(pod, "pod-group") == job[1] for key, pod in pods
        )

    def clear(self) -> None:
        if self._gang is not None:
            self.tell(f"the scheduler sees {self._gang[1]} again")
        self._gang = None
        self.scheduler.passes_over(None)
