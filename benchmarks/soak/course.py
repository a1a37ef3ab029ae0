"""One run from a fresh cluster to an empty one, and everything that was seen in between.

A run has three parts: kills, faults that every program lives through, kills. After the last fault
nothing more is submitted, and the time is taken until every gang has come to rest.
"""

import os
import random
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.soak.faults import (
    ENDURED,
    KILLS,
    LEASE_SECONDS,
    NODE_LOST_SECONDS,
    FaultOf,
    Ground,
)
from benchmarks.soak.load import CLASSES, GPUS, NODES, QUEUES, Load
from benchmarks.soak.samples import Sampler
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.kwokctl import Arguments
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.stack import BiremeStack, Keeper
from testbed.faultproxy import FaultProxy
from testbed.history.records import Record, in_order
from testbed.scenario.clusters import install_api
from testbed.scenario.manifests import priority_class
from testbed.scenario.promises import BrokenPromisesError, History, judged
from testbed.scenario.tenant import ENDED, Tenant

TENANTS: Final = 4
SAMPLE_SECONDS: Final = 10.0
KILLS_SHARE: Final = 0.1
"""Share of the time at the beginning, and again at the end, in which programs are killed."""
SETTINGS: Final = {
    "BIREME_NODE_LOST_SECONDS": str(NODE_LOST_SECONDS),
    "BIREME_MIN_RUNTIME_SECONDS": "5",
}
ARGUMENTS: Final[Arguments] = {
    # Events of an hour ago would be all that grows in the first one.
    "kube-apiserver": {"event-ttl": "10m"},
}
REST_SECONDS: Final = 30.0
"""Within this after the last fault every gang is to have come to rest."""
_END_SECONDS: Final = 300.0


class Struck(msgspec.Struct, frozen=True, kw_only=True):
    """A fault: when it began and ended, in seconds since the beginning of the run."""

    name: str
    what: str
    began: float
    ended: float
    is_kill: bool


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """How long something took, at the time when it began."""

    began: float
    took: float


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run, beside its samples.

    Attributes:
        rest_seconds: From the last fault, a kill, until every gang had come to rest.
        first_words: From a job's creation until its status first says something.
        bindings: From the creation of a pod of Bireme until it has its node.
        left: What was still there at the end, when everything had been deleted.
        broken: What the judge of the history found.
    """

    seed: int
    asked_seconds: float
    lasted_seconds: float
    submitted: dict[str, int]
    refused: int
    faults: tuple[Struck, ...]
    revisions: int
    rest_seconds: float
    restless: tuple[str, ...]
    first_words: tuple[Word, ...]
    bindings: tuple[Word, ...]
    left: tuple[str, ...]
    broken: tuple[str, ...]
    errors: tuple[str, ...]


@dataclass
class _Clock:
    """Seconds since the beginning of the run."""

    began: float = field(default_factory=time.monotonic)

    def __call__(self) -> float:
        return time.monotonic() - self.began


def soak(seconds: float, seed: int, folder: Path, say: Callable[[str], None]) -> Seen:
    """Run for so long, write samples into ``folder``, and return what was seen."""
    with ExitStack() as open_until_end:
        enter = open_until_end.enter_context
        name = f"soak-{os.getpid()}-{secrets.token_hex(2)}"
        cluster = enter(Cluster.start(name, arguments=ARGUMENTS))
        cluster.add_nodes(fake_nodes(NODES, gpus=GPUS, racks=2))
        install_api(cluster)
        # The garbage collector looks for new kinds every 30 s only, and at its start.
        controllers = cluster.component("kube-controller-manager")
        controllers.stop()
        controllers.start()
        broken: list[str] = []
        run = _Run(cluster, seed, folder, say)
        try:
            with judged(cluster) as history:
                run.go(history, seconds)
        except BrokenPromisesError as error:
            broken = str(error).splitlines()
        return run.seen(broken)


class _Run:
    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._seed = seed
        self._folder = folder
        self._say = say
        self._faults: list[Struck] = []
        self._errors: list[str] = []
        self._end = threading.Event()
        self._no_more = threading.Event()
        self._asked_seconds = self._rest_seconds = self._lasted_seconds = 0.0
        self._restless: list[str] = []
        self._left: list[str] = []
        self._records: list[Record] = []

    def go(self, history: History, seconds: float) -> None:
        self._history = history
        self._asked_seconds = seconds
        for name, value in CLASSES.items():
            classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
            self._cluster.api.post(classes, priority_class(name, value))
        for queue in QUEUES:
            self._cluster.api.post("/apis/bireme.dev/v1alpha1/queues", queue)
        with self._bireme() as ground:
            self._clock = _Clock()
            self._offset_seconds = self._history.elapsed_seconds
            self._load = Load(ground.tenants, self._seed)
            sampler = Sampler(ground.stack, self._folder)
            threads = [
                self._thread("samples", lambda: self._sample(sampler)),
                self._thread("load", self._submit),
            ]
            try:
                self._strike_all(ground, seconds)
                self._await_rest(ground)
                self._await_end(ground)
            finally:
                self._end.set()
                for thread in threads:
                    thread.join(60)
                self._lasted_seconds = self._clock()
                self._records = self._history.records()

    @contextmanager
    def _bireme(self) -> Iterator[Ground]:
        """Run Bireme, operator and extender behind a proxy each, as a kubelet would."""
        with ExitStack() as open_until_end:
            enter = open_until_end.enter_context
            proxies = [enter(FaultProxy(self._cluster.kubeconfig)) for _ in range(2)]
            names = ("operator-a", "extender")
            kubeconfigs = {n: p.kubeconfig for n, p in zip(names, proxies, strict=True)}
            folder, internals = self._folder / "logs", {"lease_duration_seconds": LEASE_SECONDS}
            stack = BiremeStack(self._cluster, folder, SETTINGS, kubeconfigs, internals=internals)
            enter(stack).start()
            tenants = [
                Tenant(self._cluster, self._cluster.create_namespace(f"tenant-{number}"))
                for number in range(TENANTS)
            ]
            yield Ground(
                stack=stack,
                keeper=enter(Keeper(stack.processes)),
                proxies=tuple(proxies),
                tenants=tuple(tenants),
                nodes=NODES,
                gpus=GPUS,
                draw=random.Random(self._seed),  # noqa: S311  # a load, no secret
            )

    # --- what happens all the time --------------------------------------------------------

    def _thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except Exception:  # noqa: BLE001  # told at the end; the run goes on
                self._errors.append(f"{name}: {traceback.format_exc()}")

        thread = threading.Thread(target=guarded, name=name)
        thread.start()
        return thread

    def _sample(self, sampler: Sampler) -> None:
        due = 0.0
        while not self._end.wait(max(0.0, due - self._clock())):
            sampler.sample(self._clock())
            due += SAMPLE_SECONDS

    def _submit(self) -> None:
        draw = random.Random(self._seed + 1)  # noqa: S311  # a load, no secret
        due = 0.0
        while not self._end.wait(1.0):
            self._load.delete_due(self._clock())
            if not self._no_more.is_set() and self._clock() >= due:
                self._load.submit(self._clock())
                due = self._clock() + draw.uniform(4.0, 12.0)

    # --- faults, one after the other ------------------------------------------------------

    def _strike_all(self, ground: Ground, seconds: float) -> None:
        pause = min(60.0, max(10.0, seconds / 60))
        first, last = KILLS_SHARE * seconds, (1 - KILLS_SHARE) * seconds
        for kinds, ended in ((KILLS, first), (ENDURED, last), (KILLS, seconds)):
            number = 0
            while self._clock() < ended and not self._end.wait(pause):
                self._strike(ground, kinds[number % len(kinds)], is_kill=kinds is KILLS)
                number += 1

    def _strike(self, ground: Ground, fault: FaultOf, *, is_kill: bool) -> None:
        name, what = fault.__name__, (fault.__doc__ or "").strip()
        began = self._clock()
        try:
            fault(ground)
        except Exception:  # noqa: BLE001  # told at the end; the run goes on
            self._errors.append(f"{name}: {traceback.format_exc()}")
        struck = Struck(name=name, what=what, began=began, ended=self._clock(), is_kill=is_kill)
        self._faults.append(struck)
        self._say(f"{name}, {struck.ended - struck.began:.0f} s")

    # --- the end --------------------------------------------------------------------------

    def _await_rest(self, ground: Ground) -> None:
        """Take the time from the last fault, a kill, until every gang has come to rest."""
        self._no_more.set()
        since = self._faults[-1].began
        while self._clock() - since < _END_SECONDS:
            found = [wrong for t in ground.tenants for wrong in self._history.restless(t.namespace)]
            if not found:
                break
            self._restless = found
            time.sleep(0.5)
        self._rest_seconds = self._clock() - since
        self._say(f"at rest {self._rest_seconds:.0f} s after the last fault")

    def _await_end(self, ground: Ground) -> None:
        """Let everything end, delete what then is left, and see that nothing stays."""
        until = self._clock() + _END_SECONDS
        while self._clock() < until and not (self._load.is_cleared and self._all_ended(ground)):
            time.sleep(1.0)
        for tenant in ground.tenants:
            tenant.clear()
        until = self._clock() + _END_SECONDS
        while self._clock() < until and (left := self._found(ground)):
            self._left = left
            time.sleep(1.0)
        if not self._found(ground):
            self._left = []

    def _all_ended(self, ground: Ground) -> bool:
        jobs = [job for tenant in ground.tenants for job in tenant.all("TrainingJob")]
        return all(job.get("status", {}).get("phase") in ENDED for job in jobs)

    def _found(self, ground: Ground) -> list[str]:
        """Name what is left of Bireme: objects, and usage of queues."""
        found = []
        for tenant in ground.tenants:
            for kind in ("TrainingJob", "PodGroup", "Pod", "Service"):
                names = [each["metadata"]["name"] for each in tenant.all(kind)]
                found += [f"{kind} {tenant.namespace}/{name}" for name in names]
        queues = self._cluster.api.get("/apis/bireme.dev/v1alpha1/queues")["items"]
        for queue in queues:
            status = queue.get("status", {})
            held = {k: v for k, v in status.get("usage", {}).items() if v != "0"}
            held |= {k: status[k] for k in ("admitted", "pending") if status.get(k)}
            if held:
                found.append(f"Queue {queue['metadata']['name']}: {held}")
        return found

    def seen(self, broken: list[str]) -> Seen:
        return Seen(
            seed=self._seed,
            asked_seconds=self._asked_seconds,
            lasted_seconds=self._lasted_seconds,
            submitted=dict(sorted(self._load.submitted.items())),
            refused=self._load.refused,
            faults=tuple(self._faults),
            revisions=len(self._records),
            rest_seconds=self._rest_seconds,
            restless=tuple(self._restless),
            first_words=tuple(_first_words(self._records, self._offset_seconds)),
            bindings=tuple(_bindings(self._records, self._offset_seconds)),
            left=tuple(self._left),
            broken=tuple(broken),
            errors=tuple(self._errors),
        )


def _first_words(records: Sequence[Record], offset: float) -> Iterator[Word]:
    """Yield for every job how long it took until its status said something."""
    made: dict[str, float] = {}
    for record in in_order(records):
        if record.kind != "TrainingJob" or record.change in ("DELETED", "GAP"):
            continue
        uid, status = record.manifest["metadata"]["uid"], record.manifest.get("status") or {}
        if record.change == "ADDED":
            made[uid] = record.seconds
        if status.get("reason") and uid in made:
            began = made.pop(uid)
            yield Word(began=began - offset, took=record.seconds - began)


def _bindings(records: Sequence[Record], offset: float) -> Iterator[Word]:
    """Yield for every pod of Bireme's scheduler how long it took until it had a node."""
    made: dict[str, float] = {}
    for record in in_order(records):
        if record.kind != "Pod" or record.change in ("DELETED", "GAP"):
            continue
        spec, uid = record.manifest["spec"], record.manifest["metadata"]["uid"]
        if record.change == "ADDED" and spec.get("schedulerName") == "bireme":
            made[uid] = record.seconds
        if spec.get("nodeName") and uid in made:
            began = made.pop(uid)
            yield Word(began=began - offset, took=record.seconds - began)
