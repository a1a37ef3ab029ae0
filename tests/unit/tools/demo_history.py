"""The history of a workload as a faithful cluster would make it, job by job, for tests."""

from datetime import UTC, datetime
from typing import Any, Final

from bireme_lab.embedded.fake_nodes import HOSTNAME_LABEL, RACK
from testbed.history.amounts import GPU
from testbed.history.builder import HistoryBuilder, meta, pod
from testbed.history.records import Change
from tools.demo.workload import NAMESPACE, Manifest, Workload

MIDNIGHT: Final = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
"""POSIX time at the recorder's zero."""
RANKS: Final = {"production": 90, "research": 50, "batch": 20}
CLASSES: Final = {"training-urgent": 10000, "training-standard": 100, "training-background": 10}
Replica = tuple[str, str]


class DemoHistory(HistoryBuilder):
    """Every method takes the name of a job; the status of a job stays until it is set anew."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.jobs = {job.name: job.manifest for job in workload.submissions}
        self.status: dict[str, Manifest] = {}
        self.places: dict[str, dict[Replica, str]] = {}
        self._planned: dict[str, str] = {}
        for number in range(workload.nodes):
            name, rack = f"gpu-{number:02d}", number * workload.racks // workload.nodes
            node = meta(name, namespace="", labels={RACK: f"rack-{rack}", HOSTNAME_LABEL: name})
            offered = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: "8"}
            self.add("Node", node | {"status": {"allocatable": offered}})
        for queue, rank in RANKS.items():
            self.add("Queue", meta(queue, namespace="") | {"spec": {"userPriority": rank}})
        for name, value in CLASSES.items():
            self.add("PriorityClass", meta(name, namespace="") | {"value": value})

    def stamp(self, after_seconds: float = 0) -> str:
        """The time now, or so many seconds later, as objects carry it."""
        at = datetime.fromtimestamp(int(MIDNIGHT + self.seconds + after_seconds), UTC)
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")

    def say(self, name: str, phase: str, reason: str, message: str, **more: Any) -> None:
        """The job with a status; ``more`` are other fields of it."""
        status = self.status[name] | {"phase": phase, "reason": reason, "message": message} | more
        self.status[name] = status | {"queuePosition": 1, "priority": {"score": 0.5}}
        self._tell(name)

    def _tell(self, name: str) -> None:
        """The next revision of the job."""
        fields = {"creationTimestamp": self.jobs[name]["created"]}
        manifest = meta(name, namespace=NAMESPACE, **fields) | {"spec": self.jobs[name]["spec"]}
        self.add("TrainingJob", manifest | {"status": dict(self.status[name])})

    def submit(self, name: str) -> None:
        """The job is new, then waits."""
        self.jobs[name]["created"], self.status[name] = self.stamp(), {"attempt": 0}
        fields = {"creationTimestamp": self.stamp()}
        manifest = meta(name, namespace=NAMESPACE, **fields)
        self.add("TrainingJob", manifest | {"spec": self.jobs[name]["spec"]})
        self.hold(
            name, "WaitingForCapacity", "asks 9 nvidia.com/gpu; 4 nvidia.com/gpu free; 0 ahead"
        )

    def hold(self, name: str, reason: str, message: str, **more: Any) -> None:
        """The job waits, for a reason."""
        self.say(name, "Restarting" if self._attempt(name) else "Pending", reason, message, **more)

    def run(self, name: str, *nodes: str, passed: str = "") -> None:
        """All replicas, on ``nodes`` as they have room; ``passed`` is a gang that stays blocked."""
        replicas = [
            (task["name"], str(index))
            for task in self.jobs[name]["spec"]["tasks"]
            for index in range(task["replicas"])
        ]
        self.status[name] = {k: v for k, v in self.status[name].items() if k != "estimatedStart"}
        self._planned[name] = self.stamp()
        self._place(name, replicas, nodes)
        ahead = f"; ahead of {NAMESPACE}/{passed} without delaying it" if passed else ""
        condition = {"type": "Admitted", "status": "True", "message": f"on {nodes[0]}{ahead}"}
        self.say(name, "Starting", "Admitted", "all planned", conditions=[condition])
        self._pods(name, self.places[name], "Running")
        self.say(name, "Running", "GangRunning", "all run")

    def end(self, name: str) -> None:
        """The job succeeds."""
        self._pods(name, self.places[name], "Succeeded")
        self._plan(name, {})
        self.say(name, "Succeeded", "Succeeded", "so")

    def again(self, name: str, reason: str, message: str, counter: str) -> None:
        """The job fails or is stopped, and waits again."""
        gone = self.places[name]
        if reason == "PodFailed":
            self._pods(name, gone, "Failed")
        attempt = self._attempt(name)
        counts = {"attempt": attempt + 1, counter: 1, "conditions": []}
        self.say(name, "Restarting", reason, message, **counts)
        self._pods(name, gone, "Failed", "DELETED", attempt)
        self._plan(name, {})
        self.hold(name, "WaitingForCapacity", "asks 8 nvidia.com/gpu; 0 nvidia.com/gpu free")

    def resize(self, name: str, replicas: int, node: str, reason: str, message: str) -> None:
        """An elastic job of workers has so many from now on; what is new is on ``node``."""
        had = self.places[name]
        wanted = [("worker", str(index)) for index in range(replicas)]
        self.places[name] = {replica: at for replica, at in had.items() if replica in wanted}
        new = [replica for replica in wanted if replica not in had]
        self._place(name, new, (node,))
        self._tell(name)
        self._pods(name, {replica: self.places[name][replica] for replica in new}, "Running")
        gone = {replica: at for replica, at in had.items() if replica not in wanted}
        self._pods(name, gone, "Failed", "DELETED")
        event = meta(f"{name}.{reason}", namespace=NAMESPACE) | {"reason": reason}
        self.add("Event", event | {"involvedObject": {"name": name}, "message": message})

    def _attempt(self, name: str) -> int:
        return int(self.status[name]["attempt"])

    def _place(self, name: str, replicas: list[Replica], nodes: tuple[str, ...]) -> None:
        places = self.places.setdefault(name, {})
        for replica in replicas:
            gpus = self._gpus(name, replica)
            places[replica] = next(node for node in nodes if self._free(node) >= gpus)
        self._plan(name, places)

    def _free(self, node: str) -> int:
        held = (
            self._gpus(name, replica)
            for name, places in self.places.items()
            for replica, at in places.items()
            if at == node
        )
        return 8 - sum(held)

    def _gpus(self, name: str, replica: Replica) -> int:
        (task,) = (t for t in self.jobs[name]["spec"]["tasks"] if t["name"] == replica[0])
        limits = task["template"]["spec"]["containers"][0]["resources"].get("limits", {})
        return int(limits.get(GPU, 0))

    def _plan(self, name: str, places: dict[Replica, str]) -> None:
        """The status has a plan of these places from its next revision on, or none."""
        self.places[name] = places
        self.status[name].pop("plan", None)
        if places:
            plan = {"epoch": 1, "attempt": self._attempt(name), "mode": "Pinned"}
            placements = [
                {"task": task, "indices": index, "node": node}
                for (task, index), node in places.items()
            ]
            more = {"plannedTime": self._planned[name], "placements": placements}
            self.status[name]["plan"] = plan | more

    def _pods(
        self,
        name: str,
        places: dict[Replica, str],
        phase: str,
        change: Change = "MODIFIED",
        attempt: int | None = None,
    ) -> None:
        """The pods of some replicas; of the current attempt unless given."""
        attempt = self._attempt(name) if attempt is None else attempt
        for (task, index), node in places.items():
            gpus, uid = self._gpus(name, (task, index)), f"{name}-{task}-{index}.{attempt}"
            given: Manifest = {"gang": name, "uid": uid, "plan": f"1.{attempt}", "role": task}
            one = pod(index, node, phase, gpus=gpus, **given)
            one["metadata"]["namespace"] = NAMESPACE
            self.add("Pod", one, change)


def tell_all(workload: Workload) -> DemoHistory:
    """The whole small history, faithful. Of the blocks, those named first start first."""
    demo = DemoHistory(workload)
    blocks = [job.name for job in workload.submissions if len(job.after.jobs) == 1]
    elastic, large, short, urgent, flaky, never = (
        workload.named(part)
        for part in ("elastic", "reserved", "short", "urgent", "fails once", "never fits")
    )
    waves = [job.name for job in workload.submissions if job.after.jobs == (elastic,)]
    blocks = [name for name in blocks if name not in (*waves, large, short, flaky, urgent)]
    _fill(demo, elastic, never, waves)
    blocks.remove("fraud-score")
    _pass(demo, large, short, blocks, waves)
    _stop(demo, urgent, flaky, blocks, large)
    _finish(demo, elastic, urgent, flaky, blocks)
    return demo


def _fill(demo: DemoHistory, elastic: str, never: str, waves: list[str]) -> None:
    """The elastic job grows and gives back for a wave that fills the cluster."""
    for name in ("recommender", elastic, never):
        demo.submit(name)
    demo.hold(never, "NeverFits", "asks 19 worker; the cluster holds at most 15 beside the others")
    demo.run("recommender", "gpu-00")
    demo.run(elastic, "gpu-01")
    demo.resize(elastic, 8, "gpu-01", "Grown", "grown by 4 worker into idle capacity")
    for name in waves:
        demo.submit(name)
    demo.run(waves[0], "gpu-02")
    room = "when the gangs that make room have stopped: "
    demo.hold(waves[1], "WaitingForPreemption", f"{room}{NAMESPACE}/{elastic}")
    demo.resize(elastic, 4, "", "Shrunk", f"shrunk to make room for {NAMESPACE}/{waves[1]}")
    demo.run(waves[1], "gpu-01", "gpu-03")


def _pass(demo: DemoHistory, large: str, short: str, blocks: list[str], waves: list[str]) -> None:
    """A large gang is blocked, a short one passes it, the others are held back."""
    demo.submit(large)
    at = demo.stamp(15)
    kept = f"0 ahead; kept for it: 3 nodes across the cluster, expected free at {at}"
    demo.hold(large, "WaitingForCapacity", kept, estimatedStart={"earliest": at, "latest": at})
    for name in (*blocks, short):
        demo.submit(name)
    demo.end(waves[0])
    behind = f"fits now, but would take places kept for {NAMESPACE}/{large} from {at} on; "
    for name in blocks:
        demo.hold(name, "WaitingBehind", f"{behind}a spec.estimatedDuration that ends before")
    demo.run(short, "gpu-02", passed=large)
    demo.wait(3)
    demo.end(short)
    demo.end(waves[1])
    demo.run(large, "gpu-02", "gpu-03", "gpu-01")


def _stop(demo: DemoHistory, urgent: str, flaky: str, blocks: list[str], large: str) -> None:
    """Three blocks start one after the other, the last of them is stopped."""
    demo.submit(flaky)
    demo.submit("fraud-score")
    demo.end(large)
    demo.run("fraud-score", "gpu-01")
    for name, node in zip(blocks, ("gpu-02", "gpu-03"), strict=False):
        demo.run(name, node)
        demo.wait(1)
    demo.run(flaky, "gpu-01")
    demo.end("recommender")
    demo.run(blocks[2], "gpu-00")
    demo.wait(5)
    demo.again(flaky, "PodFailed", "CUDA error", "restarts")
    demo.submit(urgent)
    room = f"when the gangs that make room have stopped: {NAMESPACE}/{blocks[2]}"
    demo.hold(urgent, "WaitingForPreemption", room)
    demo.again(
        blocks[2],
        "Preempted",
        f"stopped to make room for {NAMESPACE}/{urgent}, which has a higher priority class",
        "preemptions",
    )
    demo.run(urgent, "gpu-00")


def _finish(demo: DemoHistory, elastic: str, urgent: str, flaky: str, blocks: list[str]) -> None:
    """Everybody has a turn."""
    demo.run(flaky, "gpu-01")
    demo.end(flaky)
    demo.end(elastic)
    sweeps = [name for name in demo.jobs if name.startswith("sweep-")]
    for name in sweeps:
        demo.submit(name)
        demo.run(name, "gpu-01")
    for old, new in zip(blocks[:2], blocks[3:], strict=True):
        demo.end(old)
        demo.run(new, "gpu-02", "gpu-03")
    demo.end(urgent)
    demo.end("fraud-score")
    demo.run(blocks[2], "gpu-00")
    for name in (*blocks[2:], *sweeps):
        demo.end(name)
