"""``bireme migrate release``: take namespaces and waiting pods out of Bireme's control.

1. The label ``bireme.dev/enforce`` of namespaces is removed: their queues are enforced no more.
2. Pods behind Bireme's gate are replaced by pods without it, for the default scheduler, because a
   pod's scheduler cannot be changed. Some kinds of workload are deleted and created again, the pods
   of others replaced through their template (:mod:`bireme.kube.integrations`).

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
from bireme.kube.integrations import INTEGRATIONS, integration_of
from bireme.kube.integrations.integration import Recreation, TemplateEdit

_NAMESPACES: Final = "/api/v1/namespaces"
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_ENDED_PHASES: Final = ("Succeeded", "Failed")
_LOOK_SECONDS: Final = 0.2
_GOING_SECONDS: Final = 30.0
"""Maximum time in which a deleted object disappears."""
_LABEL_SECONDS: Final = 5.0
"""Maximum time in which every API server learns of a label."""
_RELEASED_BY_OWNER: Final = frozenset(
    kind for each in INTEGRATIONS if each.release is not None for kind in each.controls
) - {"Pod"}
"""Kinds whose objects are released through their own controller, if they have one."""


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


_POD: Final = {"apiVersion": "v1", "kind": "Pod"}
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
    collection_path: str
    release: Recreation | TemplateEdit | None
    """How it is released; None where only its user can do that."""
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
        pods = await self.reader.objects(self._pods_path, fieldSelector=_OURS)
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
            workload = self._workload(_controller(pod) or {**_POD, **pod["metadata"]})
            if workload.kind in _RELEASED_BY_OWNER:
                owner = _controller(await self._read(workload) or {})
                workload = workload if owner is None else self._workload(owner)
            by_uid.setdefault(workload.uid, workload).pods.append(pod)
        return list(by_uid.values())

    def _workload(self, owner: Json) -> _Workload:
        kind = owner["kind"]
        integration = integration_of(owner["apiVersion"], kind)
        path = integration.collection_path(self.namespace) if integration is not None else ""
        release = integration.release if integration is not None else None
        return _Workload(kind, owner["name"], owner["uid"], path, release)

    async def _let_go(self, workload: _Workload) -> None:
        what = f"{workload.kind} {workload.name}, {len(workload.waiting)} waiting"
        running = sum(map(_runs, workload.pods))
        current, release = await self._read(workload), workload.release
        if running:
            self._leave(what, f"{running} of its pods run; delete it, or let them end first")
        elif release is None or current is None or current["metadata"]["uid"] != workload.uid:
            self._leave(
                what, f"take schedulerName, gate and label out of the {workload.kind} by hand"
            )
        elif isinstance(release, Recreation) and (owner := _controller(current)):
            where = f"{owner['kind']} {owner['name']}"
            self._leave(what, f"take schedulerName, gate and label out of the {where} by hand")
        else:
            try:
                if isinstance(release, Recreation):
                    await self._make_anew(workload, release, current)
                else:
                    await self._edit(workload, release, current)
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

    async def _make_anew(self, workload: _Workload, release: Recreation, current: Json) -> None:
        if self.is_dry:  # while the label is set, a trial would be refused
            return
        path, successor = workload.collection_path, _successor(release, current)
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

    async def _edit(self, workload: _Workload, release: TemplateEdit, current: Json) -> None:
        client, path = self.reader.client, f"{workload.collection_path}/{workload.name}"
        template = current["spec"]["template"]
        labels = dict.fromkeys(_own_labels(template))
        spec = {"schedulerName": _DEFAULT_SCHEDULER, "schedulingGates": _other_gates(template)}
        change: Json = {"template": {"metadata": {"labels": labels}, "spec": spec}}
        params = {"dryRun": "All"} if self.is_dry else {}
        await client.merge_patch(path, {"spec": change}, params=params)
        if self.is_dry or release.replaces_pods:
            return
        for pod in workload.waiting:
            about = pod["metadata"]
            where = f"{self._pods_path}/{about['name']}"
            try:
                await client.delete(where, uid=about["uid"])
            except ApiError as error:
                if not (error.is_not_found or error.is_conflict):  # replaced meanwhile
                    raise

    # --- small things ----------------------------------------------------------------------

    @property
    def _pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def _read(self, workload: _Workload) -> Json | None:
        """Return the object; None if it does not exist, or if only its user can release it."""
        if workload.release is None:
            return None
        try:
            body = await self.reader.client.get(f"{workload.collection_path}/{workload.name}")
        except ApiError as error:
            if error.is_not_found:
                return None
            raise refusal(error, f"get {workload.kind} {workload.name}") from error
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


def _successor(release: Recreation, current: Json) -> Json:
    """Return an object as a user would write it, without Bireme's scheduler, gate and labels."""
    successor: Json = copy.deepcopy(current)
    successor["metadata"] = {
        key: successor["metadata"][key]
        for key in ("name", "labels", "annotations", "finalizers")
        if key in successor["metadata"]
    }
    successor.pop("status", None)
    pod = release.pod_of(successor)
    for name in list(_own_labels(pod)):
        del pod["metadata"]["labels"][name]
    pod["spec"].pop("ephemeralContainers", None)
    pod["spec"]["schedulerName"] = _DEFAULT_SCHEDULER
    pod["spec"]["schedulingGates"] = _other_gates(pod)
    return successor
