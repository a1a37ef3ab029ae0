"""``bireme release``: take namespaces and waiting pods out of Bireme's control.

1. The label ``bireme.dev/enforce`` of namespaces is removed: their queues are enforced no more.
2. Pods behind Bireme's gate are replaced by pods without it, for the default scheduler, because a
   pod's scheduler cannot be changed. Pods without a controller and Jobs are deleted and created
   again; pods of StatefulSets, ReplicaSets and Deployments are replaced through their template.

Running pods are not touched, nor is a workload of which a pod runs: the output names it, with a
remedy. No operator is needed, and the caller's own rights count.
"""

import argparse
import asyncio
import copy
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from bireme.cli import cluster as common
from bireme.cli.arguments import Json
from bireme.cli.cluster import ClusterReader, ask, refusal
from bireme.kube import names
from bireme.kube.client import ApiError

_NAMESPACES: Final = "/api/v1/namespaces"
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_MADE_ANEW: Final = {"Pod": "/api/v1/{}pods", "Job": "/apis/batch/v1/{}jobs"}
_EDITED: Final = {
    "StatefulSet": "/apis/apps/v1/{}statefulsets",
    "ReplicaSet": "/apis/apps/v1/{}replicasets",
    "Deployment": "/apis/apps/v1/{}deployments",
}
_ENDED_PHASES: Final = ("Succeeded", "Failed")
_OF_A_JOB: Final = ("controller-uid", "job-name")
"""Labels that the API server gives the template of a Job, also with the prefix of its group."""
_LOOK_SECONDS: Final = 0.2
_GOING_SECONDS: Final = 30.0
"""Maximum time in which a deleted object disappears."""
_LABEL_SECONDS: Final = 5.0
"""Maximum time in which every API server learns of a label."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "-A",
        "--all-namespaces",
        action="store_true",
        help="all namespaces that enforce, or have such pods",
    )
    add("--dry-run", action="store_true", help="show the steps, and do nothing")
    common.add_target(parser)


def run(options: argparse.Namespace) -> int:
    async def question(reader: ClusterReader) -> int:
        spaces = await _namespaces(reader) if options.all_namespaces else [reader.namespace]
        unreleased = 0
        for space in spaces:
            unreleased += await _Release(reader, space, options.dry_run).done()
        if not spaces:
            sys.stdout.write("no namespace has anything to release\n")
        return int(unreleased > 0)

    return ask(options, question)


async def _namespaces(reader: ClusterReader) -> list[str]:
    """Return the namespaces that enforce their queues, or have pods behind Bireme's gate."""
    pods = await reader.objects("/api/v1/pods", fieldSelector=_OURS)
    waiting = {pod["metadata"]["namespace"] for pod in pods if _waits(pod)}
    spaces = [manifest["metadata"] for manifest in await reader.objects(_NAMESPACES)]
    return sorted(
        about["name"]
        for about in spaces
        if "deletionTimestamp" not in about and (_is_enforced(about) or about["name"] in waiting)
    )


def _is_enforced(namespace: Json) -> bool:
    return (namespace.get("labels") or {}).get(names.ENFORCE_LABEL) == "true"


_OURS: Final = f"spec.schedulerName={names.SCHEDULER_NAME}"


def _waits(pod: Json) -> bool:
    """Return whether a pod of another controller waits behind Bireme's gate."""
    gates = (gate["name"] for gate in pod["spec"].get("schedulingGates") or ())
    return names.PLAN_GATE in gates and "deletionTimestamp" not in pod["metadata"]


def _runs(pod: Json) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return bool(pod["spec"].get("nodeName")) and phase not in _ENDED_PHASES


class _NotMadeAnewError(Exception):
    """An object was deleted, and the API server refused its successor."""


@dataclass(slots=True)
class _Workload:
    """A pod without a controller, or the pods of one controller: they are released together."""

    kind: str
    name: str
    uid: str
    pods: list[Json] = field(default_factory=list)
    """All of its pods with Bireme's scheduler, waiting or not."""

    @property
    def waiting(self) -> list[Json]:
        return [pod for pod in self.pods if _waits(pod)]


@dataclass(slots=True)
class _Release:
    """Releases one namespace, or reports in a dry run what that would change."""

    reader: ClusterReader
    namespace: str
    is_dry: bool
    _was_enforced: bool = False
    _unreleased: int = 0

    async def done(self) -> int:
        """Release the namespace; return the number of workloads left unchanged, each reported."""
        self._was_enforced = await self._stop_enforcing()
        path = self._path("/api/v1/{}pods")
        pods = await self.reader.objects(path, fieldSelector=_OURS)
        workloads = [workload for workload in await self._workloads(pods) if workload.waiting]
        for workload in workloads:
            await self._let_go(workload)
        if not workloads and not self._was_enforced:
            self._say("nothing to release")
        return self._unreleased

    # --- the namespace ---------------------------------------------------------------------

    async def _stop_enforcing(self) -> bool:
        """Remove the label, with which later requests are refused; return whether it was set."""
        path = f"{_NAMESPACES}/{self.namespace}"
        try:
            manifest: Json = msgspec.json.decode(await self.reader.client.get(path))
            if not _is_enforced(manifest["metadata"]):
                return False
            if not self.is_dry:
                change = {"metadata": {"labels": {names.ENFORCE_LABEL: None}}}
                await self.reader.client.merge_patch(path, change)
        except ApiError as error:
            raise refusal(error, f"release namespace {self.namespace}") from error
        self._say(
            "it no longer enforces its queues"
            if not self.is_dry
            else "would no longer enforce its queues"
        )
        return True

    # --- waiting pods ----------------------------------------------------------------------

    async def _workloads(self, pods: Iterable[Json]) -> list[_Workload]:
        by_uid: dict[str, _Workload] = {}
        for pod in pods:
            owner = _controller(pod)
            if owner is not None and owner["kind"] == "ReplicaSet":
                replica_set = await self._read("ReplicaSet", owner["name"])
                owner = _controller(replica_set or {}) or owner
            about = owner or {"kind": "Pod", **pod["metadata"]}
            workload = _Workload(about["kind"], about["name"], about["uid"])
            by_uid.setdefault(workload.uid, workload).pods.append(pod)
        return list(by_uid.values())

    async def _let_go(self, workload: _Workload) -> None:
        what = f"{workload.kind} {workload.name}, {len(workload.waiting)} waiting"
        running = sum(map(_runs, workload.pods))
        current = await self._read(workload.kind, workload.name)
        if running:
            self._leave(what, f"{running} of its pods run; delete it, or let them end first")
        elif current is None or current["metadata"]["uid"] != workload.uid:
            self._leave(
                what, f"take schedulerName, gate and label out of the {workload.kind} by hand"
            )
        elif workload.kind == "Job" and _controller(current):
            owner = _controller(current) or {}
            where = f"{owner['kind']} {owner['name']}"
            self._leave(what, f"take schedulerName, gate and label out of the {where} by hand")
        else:
            try:
                if workload.kind in _MADE_ANEW:
                    await self._make_anew(workload.kind, current)
                else:
                    await self._edit(workload, current)
            except ApiError as error:
                self._leave(what, str(error))
                return
            except _NotMadeAnewError as error:
                self._unreleased += 1
                self._say(
                    f"{what}: deleted, but not created again: {error}; its manifest is on stderr"
                )
                return
            done = "would be created again" if self.is_dry else "made anew"
            self._say(f"{what}: {done}, for the {_DEFAULT_SCHEDULER}")

    async def _make_anew(self, kind: str, current: Json) -> None:
        if self.is_dry:  # while the label is set, a trial would be refused
            return
        path, successor = self._path(_MADE_ANEW[kind]), _successor(current)
        name, uid = current["metadata"]["name"], current["metadata"]["uid"]
        # A trial first: the successor may be refused for a full quota or a missing account.
        trial = copy.deepcopy(successor)
        trial["metadata"]["name"] = f"{name[:50].rstrip('-.')}-release"
        await self._create(path, trial, dryRun="All")
        await self.reader.client.delete(f"{path}/{name}", uid=uid, propagation="Background")
        try:
            await self._create(path, successor)
        except ApiError as error:
            # This is the only copy of the manifest.
            sys.stderr.write(f"{msgspec.json.encode(successor).decode()}\n")
            raise _NotMadeAnewError(str(error)) from error

    async def _create(self, path: str, body: Json, **params: str) -> None:
        """Create an object; retry until its predecessor and the effect of the label are gone."""
        began = time.monotonic()
        while True:
            try:
                await self.reader.client.create(path, body, params=params)
            except ApiError as error:
                patience = _GOING_SECONDS if error.is_already_exists else _LABEL_SECONDS
                may_pass = error.is_already_exists or (error.is_forbidden and self._was_enforced)
                if not may_pass or time.monotonic() - began > patience:
                    raise
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                return

    async def _edit(self, workload: _Workload, current: Json) -> None:
        client, path = self.reader.client, f"{self._path(_EDITED[workload.kind])}/{workload.name}"
        template = current["spec"]["template"]
        labels = dict.fromkeys(_own_labels(template))
        spec = {"schedulerName": _DEFAULT_SCHEDULER, "schedulingGates": _other_gates(template)}
        change: Json = {"template": {"metadata": {"labels": labels}, "spec": spec}}
        params = {"dryRun": "All"} if self.is_dry else {}
        await client.merge_patch(path, {"spec": change}, params=params)
        if self.is_dry or workload.kind == "Deployment":  # a Deployment replaces its ReplicaSet
            return
        for pod in workload.waiting:
            about = pod["metadata"]
            where = f"{self._path('/api/v1/{}pods')}/{about['name']}"
            try:
                await client.delete(where, uid=about["uid"])
            except ApiError as error:
                if not (error.is_not_found or error.is_conflict):  # replaced meanwhile
                    raise

    # --- small things ----------------------------------------------------------------------

    def _path(self, form: str) -> str:
        return form.format(f"namespaces/{self.namespace}/")

    async def _read(self, kind: str, name: str) -> Json | None:
        """Return the object; None if it does not exist, or if its kind is unknown here."""
        form = {**_MADE_ANEW, **_EDITED}.get(kind)
        if form is None:
            return None
        try:
            body = await self.reader.client.get(f"{self._path(form)}/{name}")
        except ApiError as error:
            if error.is_not_found:
                return None
            raise refusal(error, f"get {kind} {name}") from error
        manifest: Json = msgspec.json.decode(body)
        return manifest

    def _say(self, line: str) -> None:
        sys.stdout.write(f"{self.namespace}: {line}\n")

    def _leave(self, what: str, reason: str) -> None:
        self._unreleased += 1
        self._say(f"{what}: left as it is: {reason}")


def _controller(manifest: Json) -> Json | None:
    owners = (manifest.get("metadata") or {}).get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _own_labels(manifest: Json) -> Iterator[str]:
    labels = (manifest.get("metadata") or {}).get("labels") or {}
    return (name for name in labels if name.startswith(f"{names.GROUP}/"))


def _other_gates(manifest: Json) -> list[Any]:
    gates = manifest["spec"].get("schedulingGates") or ()
    return [gate for gate in gates if gate["name"] != names.PLAN_GATE]


def _successor(current: Json) -> Json:
    """Return a Pod or Job as a user would write it, without Bireme's scheduler, gate and labels."""
    successor: Json = copy.deepcopy(current)
    successor["metadata"] = {
        key: successor["metadata"][key]
        for key in ("name", "labels", "annotations", "finalizers")
        if key in successor["metadata"]
    }
    successor.pop("status", None)
    pod = successor
    if successor["kind"] == "Job":
        pod = successor["spec"]["template"]
        if not successor["spec"].get("manualSelector"):
            successor["spec"].pop("selector", None)
            job_labels = {*_OF_A_JOB, *(f"batch.kubernetes.io/{name}" for name in _OF_A_JOB)}
            for part in (successor, pod):
                labels = part["metadata"].get("labels") or {}
                part["metadata"]["labels"] = {
                    k: v for k, v in labels.items() if k not in job_labels
                }
    for name in list(_own_labels(pod)):
        del pod["metadata"]["labels"][name]
    pod["spec"].pop("ephemeralContainers", None)
    pod["spec"]["schedulerName"] = _DEFAULT_SCHEDULER
    pod["spec"]["schedulingGates"] = _other_gates(pod)
    return successor
