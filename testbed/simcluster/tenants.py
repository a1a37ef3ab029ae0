"""Users: what they submit, and how they interfere with it afterwards."""

import asyncio
from random import Random
from typing import Any

from bireme.kube import names
from bireme_lab.embedded.api.errors import ApiRefusal
from testbed.fakeapi.store import Key, Object
from testbed.scenario.manifests import (
    annotations,
    disruption_budget,
    member_template,
    pod,
    pod_group,
    pod_spec,
    priority_class,
    queue,
    scheduling_policy,
    task,
    torch_job,
    training_job,
)
from testbed.simcluster import objects, pod_rules, pod_status, volumes
from testbed.simcluster.autoscaler import MAX_NODES
from testbed.simcluster.cluster import SPACE, SimulatedCluster
from testbed.simcluster.node_faults import MISSING_IMAGE
from testbed.simcluster.objects import (
    BATCH_JOBS,
    BUDGETS,
    GROUPS,
    JOBS,
    PODS,
    POLICIES,
    QUEUES,
)
from testbed.simcluster.pod_rules import RACK, SHY, of_job, of_other
from testbed.simcluster.taints import TOLERATION

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
NAMESPACES = "/api/v1/namespaces"
NODES = 3
_MAX_URGENT = 4
_ALIKE = 6
MIN_LIMIT = 8
"""GPUs that the queue with a limit takes at least."""
HOPELESS = "hopeless"
"""A job that no cluster of this size can run; it has to wait, and say so."""
UNPULLABLE = "unpullable"
"""A job whose image is nowhere; it has to give its places back again and again."""


class Tenants:
    """All users, working through the API server without its network."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._chance = cluster.chance("tenants")
        self._ports = cluster.chance("ports")
        self._lengths = cluster.chance("lengths")
        self._rules = cluster.chance("rules")
        self._roles = cluster.chance("roles")
        self._urgencies = cluster.chance("urgencies")
        self._twins = cluster.chance("twins")
        self._resuming = cluster.chance("resuming")
        self._foreign: dict[str, tuple[int, float]] = {}
        self._made = 0
        self.most_foreign = 100

    def furnish(self) -> None:
        for index in range(NODES):
            self._cluster.add_node(f"n{index}")
        limit = {"nvidia.com/gpu": str(self._chance.choice((MIN_LIMIT, 12, 16)))}
        self._cluster.put(QUEUES, queue("default"))
        self._cluster.put(QUEUES, queue("small", limit=limit, userPriority=90))
        self._cluster.put(NAMESPACES, {"kind": "Namespace", "metadata": {"name": SPACE}})
        if self._cluster.world.jobs_have_volumes:
            volumes.furnish(self._store, SPACE)
            if self._cluster.world.nodes_attach_few:
                nodes = [f"n{index}" for index in range(NODES)]
                volumes.furnish_limits(self._store, SPACE, nodes, self._lengths.choice((1, 2)))
        self._cluster.put(CLASSES, priority_class("low", 1))
        self._cluster.put(CLASSES, priority_class("high", 1000))

    async def submit_over(self, seconds: float) -> None:
        count = self._chance.randint(4, 10)
        rush = self._chance.uniform(0, seconds)
        moments = sorted(
            # Half of all jobs come in a rush, because those that compete find most.
            rush + self._chance.uniform(0, 2)
            if self._chance.random() < 0.5
            else self._chance.uniform(0, seconds)
            for _ in range(count)
        )
        began = self._cluster.loop.time()
        if self._cluster.world.some_are_urgent:
            self._cluster.loop.create_task(self._hurry(seconds))
        if self._cluster.world.some_are_alike:
            self._cluster.loop.create_task(self._repeat(seconds))
        if self._cluster.world.gpus_differ:
            self._fill_nodes()
        for index, moment in enumerate(moments):
            await asyncio.sleep(began + moment - self._cluster.loop.time())
            self._submit(f"j{index}")
        if self._chance.random() < 0.3:
            self._put_job(training_job(HOPELESS, task("worker", NODES + MAX_NODES + 2, gpus=8)))
        if self._cluster.world.images_hang and self._lengths.random() < 0.5:
            spec = pod_spec(1)
            spec["containers"][0]["image"] = MISSING_IMAGE
            self._put_job(training_job(UNPULLABLE, task("worker", 2, spec=spec)))

    def _fill_nodes(self) -> None:
        """Submit a job for each node: those that end soon leave faster GPUs to the others."""
        for index in range(NODES):
            lasts = self._resuming.choice((30, 60, 300))
            self._put_job(_whole_nodes(f"filler{index}", 1, f"{lasts}s", "low"))

    async def _hurry(self, seconds: float) -> None:
        """Submit long jobs, and for ``seconds`` at most short ones that go before them."""
        drawn, end = self._urgencies, self._cluster.loop.time() + seconds
        for index in range(NODES):
            self._put_job(_whole_nodes(f"low{index}", 1, f"{drawn.randint(40, 70)}s", "low"))
        for number in range(_MAX_URGENT):
            await asyncio.sleep(drawn.uniform(15.0, 30.0))
            if self._cluster.loop.time() > end:
                return
            self._put_job(_whole_nodes(f"high{number}", NODES, f"{drawn.randint(2, 4)}s", "high"))

    async def _repeat(self, seconds: float) -> None:
        """Submit one job again and again, faster than it runs."""
        lasts, end = f"{self._twins.randint(10, 30)}s", self._cluster.loop.time() + seconds
        for number in range(_ALIKE):
            if self._cluster.loop.time() > end:
                return
            self._put_job(_whole_nodes(f"twin{number}", NODES - 1, lasts, "low"))
            await asyncio.sleep(self._twins.uniform(2.0, 8.0))

    def _submit(self, name: str) -> None:
        kind = self._chance.random()
        share = 0.5 if self._cluster.world.groups_are_applied_again else 0.15
        if kind < share and len(self._foreign) < self.most_foreign:
            self._submit_foreign(name)
        elif kind < share + 0.1:
            self._submit_other(name)
        else:
            self._put_job(self._job(name))
        if self._chance.random() < 0.2:
            budget = disruption_budget(name, 1, **{"bireme.dev/pod-group": name})
            self._cluster.put(BUDGETS, budget, SPACE)

    def _job(self, name: str) -> Object:
        drawn = self._chance
        seconds = drawn.randint(3, 60)
        if self._cluster.world.has_long_jobs and self._lengths.random() < 0.4:
            seconds += self._lengths.randint(60, 240)
        fake = annotations(f"{seconds}s", drawn.choice(("", "", "", "0")))
        shape: dict[str, Any] = {"gpus": drawn.choice((1, 2, 4, 8)), "fake": fake}
        spec: dict[str, Any] = {
            "queue": drawn.choice(("default", "default", "small")),
            "runPolicy": {"backoffLimit": 2, "cleanPodPolicy": drawn.choice(("Running", "All"))},
        }
        if (given := drawn.choice((None, None, "low", "high"))) is not None:
            spec["priorityClassName"] = given
        if drawn.random() < 0.5:
            spec["estimatedDuration"] = f"{drawn.randint(5, 90)}s"
        if drawn.random() < 0.1:
            spec["runPolicy"]["ttlSecondsAfterFinished"] = drawn.randint(0, 20)
        replicas, kind = drawn.randint(1, 3), drawn.random()
        # It could never run in the queue with the limit, and would be taken for stuck.
        if replicas * shape["gpus"] > MIN_LIMIT:
            spec["queue"] = "default"
        if self._ports.random() < 0.2:
            # Of every task: with parameter servers or a master there would be too few nodes.
            shape["spec"] = with_port(shape.pop("gpus"), self._ports.choice((7000, 7001)))
            return training_job(name, task("worker", replicas, **shape), **spec)
        if self._cluster.world.pods_have_rules and self._rules.random() < 0.5:
            # One rack of two nodes must hold it whole.
            shape["spec"] = {**pod_spec(min(shape.pop("gpus"), 4)), **of_job(name, self._rules)}
            made = task("worker", replicas, **shape)
            made["template"].setdefault("metadata", {})["labels"] = dict(SHY)
            return training_job(name, made, **spec)
        if self._cluster.world.roles_are_bound and self._roles.random() < 0.5:
            # They fill the larger rack.
            spec |= {"roleAffinity": {"mode": "Required", "topologyKey": RACK}, "queue": "default"}
            workers = task("worker", 4, **{**shape, "gpus": 4})
            return training_job(name, task("ps", 1, gpus=0), workers, **spec)
        if kind < 0.25:
            shape["gpus"] = min(shape["gpus"], 4)
            most = replicas + drawn.randint(1, 2)
            workers = task("worker", replicas, minReplicas=1, maxReplicas=most, **shape)
            return training_job(name, workers, rendezvous="torch", **spec)
        if kind < 0.5:
            return torch_job(name, replicas, **{**shape, "gpus": 2}, **spec)
        if kind < 0.6:
            servers = task("ps", 1, gpus=0)
            return training_job(name, servers, task("worker", replicas, **shape), **spec)
        return training_job(name, task("worker", replicas, **shape), **spec)

    def _put_job(self, job: Object) -> None:
        # A volume of one node and replicas on several would be too much to ask.
        takes_volume = not any(
            pod_rules.has_rules(each["template"]["spec"]) for each in job["spec"]["tasks"]
        )
        if self._cluster.world.jobs_have_volumes and self._lengths.random() < 0.8 and takes_volume:
            nodes = [f"n{index}" for index in range(NODES)]
            volumes.give(self._store, job, SPACE, nodes, self._lengths)
        if self._cluster.world.nodes_are_tainted and self._lengths.random() < 0.25:
            for each in job["spec"]["tasks"]:
                each["template"]["spec"]["tolerations"] = [TOLERATION]
        if self._may_resume():
            job["spec"].setdefault("runPolicy", {})["resumable"] = True
            if self._cluster.world.gpus_differ:
                job["spec"]["estimatedDuration"] = "2h"  # what is left is worth a move
        if self._cluster.put(JOBS, job, SPACE):
            self._cluster.tell(f"user submits {job['metadata']['name']} {_shape(job)}")

    def _may_resume(self) -> bool:
        world = self._cluster.world
        can_some = world.some_can_resume or world.gpus_differ
        return can_some and self._resuming.random() < 0.5

    # --- pods of others --------------------------------------------------------------------

    def _submit_foreign(self, name: str) -> None:
        size = self._chance.randint(1, 3)
        seconds = self._chance.uniform(3, 40)
        if self._cluster.world.has_long_jobs and self._lengths.random() < 0.4:
            seconds += self._lengths.randint(60, 240)
        self._foreign[name] = (size, seconds)
        group = pod_group(name, size, queue="default")
        if self._may_resume():
            group["metadata"]["annotations"] = {names.RESUMABLE: "true"}
        self._cluster.put(GROUPS, group, SPACE)
        self._cluster.tell(f"user submits PodGroup {name} of {size}")
        self._cluster.loop.create_task(self._control(name))

    async def _control(self, name: str) -> None:
        """Play a Job controller: as many pods as were asked for, until all have succeeded.

        It remembers those that have, as Kubernetes' does by its finalizer, and says how many.
        """
        size, seconds = self._foreign[name]
        key = (SPACE, name)
        # Without a template: nobody can tell whether its pods all belong to one PodGroup.
        made_job = {"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": name}}
        job: Object = self._store.create(BATCH_JOBS, key, made_job)
        owner = {"kind": "Job", "apiVersion": "batch/v1", "controller": True}
        owner |= {"name": name, "uid": objects.uid(job)}
        succeeded: set[str] = set()
        fake = annotations(f"{seconds:.1f}s")
        while True:
            pods = self._store.collection(PODS).objects
            own = [p for p in pods.values() if objects.label(p, "pod-group") == name]
            succeeded |= {objects.uid(p) for p in own if objects.phase(p) == "Succeeded"}
            alive = [p for p in own if objects.phase(p) not in objects.ENDED]
            alive = [p for p in alive if not objects.is_leaving(p)]
            if job.get("status", {}).get("succeeded", 0) != len(succeeded):
                job = {**job, "status": {"succeeded": len(succeeded)}}
                job = self._store.update(BATCH_JOBS, key, job, "status")
            if len(succeeded) >= size:
                return
            for _ in range(size - len(alive) - len(succeeded)):
                self._made += 1
                template = member_template(name, 2, fake)
                made = {"kind": "Pod", "apiVersion": "v1", **template}
                made["metadata"] = {
                    **template["metadata"],
                    "name": f"{name}-{self._made}",
                    "ownerReferences": [owner],
                }
                self._cluster.put(PODS, made, SPACE)
            await asyncio.sleep(self._chance.uniform(0.5, 3.0))

    def _submit_other(self, name: str) -> None:
        fake = annotations(f"{self._chance.randint(5, 60)}s")
        other = pod(f"{name}-other", self._chance.choice((1, 4)), fake=fake)
        if self._ports.random() < 0.5:
            other["spec"] = {**other["spec"], **with_port(1, 7000)}
        if self._cluster.world.jobs_have_volumes:
            other["spec"] = {**other["spec"], **volumes.of_other(self._store, self._lengths)}
        if self._cluster.world.pods_have_rules:
            labels, rules = of_other(self._rules)
            other["metadata"]["labels"] = {**other["metadata"].get("labels", {}), **labels}
            other["spec"] = {**other["spec"], **rules}
        self._cluster.put(PODS, other, SPACE)

    # --- interference ----------------------------------------------------------------------

    def _any_job(self) -> tuple[Key, Object] | None:
        jobs = self._store.collection(JOBS).objects
        return self._chance.choice(sorted(jobs.items())) if jobs else None

    def delete_job(self) -> None:
        """Delete a job; now and then submit another one of its name at once."""
        if (found := self._any_job()) is None:
            return
        key, _ = found
        self._cluster.removed.add(key)
        self._store.delete(JOBS, key, {})
        self._cluster.tell(f"user deletes {key[1]}")
        if self._chance.random() < 0.5:
            self._put_job(self._job(key[1]))

    def annotate(self) -> None:
        """Edit jobs and PodGroups in a way that means nothing but a new version."""
        for resource in (JOBS, GROUPS):
            for key, obj in list(self._store.collection(resource).objects.items()):
                note = {"turn": str(self._chance.random())}
                meta = {**obj["metadata"], "annotations": note}
                self._store.update(resource, key, {**obj, "metadata": meta})

    def suspend(self) -> None:
        if (found := self._any_job()) is not None:
            key, job = found
            self._suspend(key, job, not job["spec"].get("runPolicy", {}).get("suspend", False))

    def resume_all(self) -> None:
        for key, job in list(self._store.collection(JOBS).objects.items()):
            if job["spec"].get("runPolicy", {}).get("suspend"):
                self._suspend(key, job, False)

    def _suspend(self, key: Key, job: Object, suspend: bool) -> None:
        policy = {**job["spec"].get("runPolicy", {}), "suspend": suspend}
        spec = {**job["spec"], "runPolicy": policy}
        self._store.update(JOBS, key, {**job, "spec": spec})
        self._cluster.tell(f"user sets suspend={suspend} of {key[1]}")

    def kill_pod(self) -> None:
        if pods := sorted(self._store.collection(PODS).objects):
            key = self._chance.choice(pods)
            grace = self._chance.choice((None, 0))
            self._cluster.disturb(self._store.get(PODS, key))
            self._store.delete(PODS, key, {}, grace)
            self._cluster.tell(f"user deletes pod {key[1]}, grace {grace}")

    def fail_pod(self) -> None:
        pods = self._store.collection(PODS).objects
        running = sorted(key for key, pod in pods.items() if objects.phase(pod) == "Running")
        if running:
            key = self._chance.choice(running)
            why = self._chance.choice(("Evicted", "Error"))
            pod = self._store.get(PODS, key)
            if why == "Evicted":
                words = "The node was low on resource: memory. Threshold quantity: 100Mi, "
                words += "available: 90Mi. "
                pod_status.disrupt(self._store, key, "TerminationByKubelet", words)
                status = {**self._store.get(PODS, key)["status"], "phase": "Failed"}
                pod_status.write(self._store, key, {**status, "reason": why, "message": words})
            else:
                self._cluster.kubelets.finish(key, pod, 1, leaving=objects.is_leaving(pod))
            self._cluster.tell(f"pod {key[1]} fails: {why}")

    async def take_name(self) -> None:
        """Create a PodGroup with the name of a job, and delete it a while later."""
        if jobs := sorted(self._store.collection(JOBS).objects):
            key = self._chance.choice(jobs)
            group = pod_group(key[1], 1, queue="default")
            group["metadata"]["labels"] = {objects.NAME_TAKER: "true"}
            if not self._cluster.put(GROUPS, group, key[0]):
                return
            self._cluster.tell(f"user creates a PodGroup with the name of job {key[1]}")
            try:
                await asyncio.sleep(self._chance.uniform(5.0, 60.0))
            finally:
                self._store.delete(GROUPS, key, {})
                self._cluster.tell(f"user deletes the PodGroup {key[1]}")

    def edit_queue(self) -> None:
        """Close, open or widen the queue with a limit."""
        key = ("", "small")
        try:
            found = self._store.get(QUEUES, key)
        except ApiRefusal:
            return
        limit = int(found["spec"]["limit"]["nvidia.com/gpu"]) + self._chance.choice((0, 4))
        spec = {**found["spec"], "limit": {"nvidia.com/gpu": str(limit)}}
        spec["state"] = self._chance.choice(("Open", "Closed"))
        self._store.update(QUEUES, key, {**found, "spec": spec})
        self._cluster.tell(f"admin sets queue small: {spec}")

    async def administer_over(self, seconds: float) -> None:
        """Create, change and delete SchedulingPolicies for ``seconds``, in every third seed."""
        chance = self._cluster.chance("policies")
        if chance.random() > 1 / 3:
            return
        pause = chance.uniform(2.0, 10.0)
        end = self._cluster.loop.time() + seconds
        while self._cluster.loop.time() < end:
            await asyncio.sleep(chance.expovariate(1 / pause))
            self._edit_policy(chance)

    def _edit_policy(self, chance: Random) -> None:
        """Create, change or delete one; some cannot be loaded."""
        name = chance.choice(("a", "b"))
        orderer = chance.choice(("fifo", "srtf", "drf", "no-such-orderer"))
        spec = {"orderer": orderer, "stage": chance.choice(("Active", "Shadow"))}
        found = self._store.collection(POLICIES).objects.get(("", name))
        if found is None:
            self._cluster.put(POLICIES, scheduling_policy(name, **spec))
        elif chance.random() < 0.3:
            self._store.delete(POLICIES, ("", name), {})
        else:
            self._store.update(POLICIES, ("", name), {**found, "spec": spec})
        self._cluster.tell(f"admin sets policy {name}: {spec}")

    def open_queue(self) -> None:
        found = self._store.get(QUEUES, ("", "small"))
        spec = {**found["spec"], "state": "Open"}
        self._store.update(QUEUES, ("", "small"), {**found, "spec": spec})


def with_port(gpus: int, port: int) -> Object:
    """Return the spec of a pod that takes a port of its node."""
    spec = pod_spec(gpus)
    spec["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return spec


def _whole_nodes(name: str, replicas: int, lasts: str, priority: str) -> Object:
    """Return a job of replicas that each take all GPUs of a node."""
    workers = task("worker", replicas, gpus=8, fake=annotations(lasts))
    policy = {"backoffLimit": 2}
    return training_job(name, workers, priorityClassName=priority, runPolicy=policy)


def _shape(job: Object) -> str:
    return " ".join(f"{t['name']} x{t['replicas']}" for t in job["spec"]["tasks"])
