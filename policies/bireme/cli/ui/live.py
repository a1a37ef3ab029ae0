"""The board of a cluster: watches with the reader's own rights, and a view of the objects.

If the reader may not see all namespaces, the board shows only their own, with a remark.
"""

import argparse
import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np

from bireme.cli import outlook, what_if
from bireme.cli.arguments import Json
from bireme.cli.cluster import ClusterReader, ConsoleError
from bireme.cli.gangs import ENDED_PHASES, GangLine, line_of
from bireme.cli.ui.view import QueueRow, Span, View, in_tree, main_device, node_rows
from bireme.core.device_use import device_uses
from bireme.core.errors import BiremeError
from bireme.core.gangs import Key
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.nodes import Node, NodeTable
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import names, nodes, plans, pods, quantities, wire
from bireme.kube.client import ApiError
from bireme.kube.conditions import cleaned
from bireme.kube.node_usage import NodeUsage
from bireme.kube.plans import PlanFacts
from bireme.kube.watch import Reflector
from bireme.replay.what_if import Inquiry
from bireme.tasks import Tasks

_SYNC_SECONDS: Final = 30.0
_FIRST_SECONDS: Final = 3.0
_ASK_SECONDS: Final = 10.0
_ASK_AGAIN_SECONDS: Final = 60.0
"""Pause after a refusal: the setting may be off."""
_INSTEAD: Final = "open a record: bireme ui RECORD"
_MAX_ENDED: Final = 500
"""Maximum number of ended gangs on the board; a cluster may keep them for weeks."""


class Manifest(wire.MetadataOnly, frozen=True):
    """An object with spec and status, and little of its metadata."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Gang:
    """A TrainingJob or PodGroup as pages show it, with its plan and its span of the timeline."""

    line: GangLine
    plan: PlanFacts | None
    span: Span | None
    status: Json
    spec: Json


@dataclass(slots=True)
class Live:
    """A cluster as a reader may see it, kept up to date by watches; ``version`` counts changes.

    Attributes:
        options: Arguments for the leader, as of :func:`bireme.cli.leader.add_leader`.
        clock: POSIX seconds.

    Only the leader knows the reserved places. It is asked while a page is open.
    """

    reader: ClusterReader
    options: argparse.Namespace
    source: str
    version: int = 0
    clock: Callable[[], float] = time.time  # noqa: TID251  # a person looks now
    remarks: list[str] = field(default_factory=list)
    _gangs: dict[tuple[str, str, str], _Gang] = field(default_factory=dict)
    _queues: dict[str, Json] = field(default_factory=dict)
    _policies: dict[str, Json] | None = field(default_factory=dict)
    _pools: dict[str, Json] | None = field(default_factory=dict)
    _nodes: dict[str, Node] = field(default_factory=dict)
    _other_usage: NodeUsage = field(default_factory=NodeUsage)
    _reflectors: list[Reflector[Any]] = field(default_factory=list)
    _tasks: Tasks = field(default_factory=Tasks)
    _view: tuple[int, View] | None = None
    _table: NodeTable | None = None
    _is_own_only: bool = False
    _reserved: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """Devices by gang, as ``namespace/name``, by node and by resource."""
    _reserved_unknown: str = "The leader has not answered yet."
    _ask_after: float = 0.0
    """Loop time of the next request to the leader; infinite during a request."""

    # --- watches ---

    async def start(self) -> None:
        """Begin to watch, and return once everything has been listed.

        Raises:
            ConsoleError: the cluster does not answer, or the reader may see nothing.
        """
        for kind in names.GANG_KINDS:
            plural = names.PLURALS[kind]
            await self._watch(plural, Manifest, self._putting(kind), self._dropping(kind))
        await self._watch("queues", Manifest, *self._into(self._queues))
        self._policies = await self._optional("schedulingpolicies", {})
        self._pools = await self._optional("nodepoolscalers", {})
        if not await self._watch("/api/v1/nodes", wire.V1Node, self._put_node, self._drop_node):
            self.remarks.append(
                "You may not list nodes, so the board shows no capacity and no nodes."
            )
        elif not await self._watch(
            pods.PATH, wire.V1Pod, self._put_pod, self._drop_pod, **pods.NON_MEMBERS
        ):
            self.remarks.append(
                "You may not list all pods, so devices of pods outside gangs count as free."
            )
        for reflector in self._reflectors:
            self._tasks.start(reflector.run())
        try:
            async with asyncio.timeout(_SYNC_SECONDS):
                await asyncio.gather(*(reflector.synced.wait() for reflector in self._reflectors))
        except TimeoutError:
            unsynced = [
                reflector.name for reflector in self._reflectors if not reflector.synced.is_set()
            ]
            raise ConsoleError(
                f"the API server sent no list of {', '.join(unsynced)} within {_SYNC_SECONDS:g} "
                "s; check the server"
            ) from None
        with suppress(TimeoutError):  # the page completes itself later
            async with asyncio.timeout(_FIRST_SECONDS):
                await self._ask_reserved()

    def refresh(self) -> None:
        """Ask the leader for the reserved places again, unless it was asked just now."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._ask_after:
            self._ask_after = math.inf
            self._tasks.start(self._ask_reserved())

    async def _ask_reserved(self) -> None:
        previous, pause = (self._reserved, self._reserved_unknown), _ASK_SECONDS
        namespaces = [self.reader.namespace] if self._is_own_only else []
        try:
            reply = await outlook.read_leader(self.reader, self.options, _INSTEAD, namespaces)
            self._reserved = {
                f"{gang.namespace}/{gang.name}": gang.reserved
                for gang in reply.gangs
                if gang.reserved
            }
            self._reserved_unknown = ""
        except BiremeError as error:
            self._reserved, self._reserved_unknown = {}, f"{cleaned(str(error))}."
            pause = _ASK_AGAIN_SECONDS
        finally:
            self._ask_after = asyncio.get_running_loop().time() + pause
        if previous != (self._reserved, self._reserved_unknown):
            self._count_change()

    @property
    def is_live(self) -> bool:
        """Whether no watch is interrupted; else the view may be old."""
        return all(reflector.is_live for reflector in self._reflectors)

    async def _optional(self, plural: str, into: dict[str, Json]) -> dict[str, Json] | None:
        may_list = await self._watch(plural, Manifest, *self._into(into))
        if not may_list:
            self.remarks.append(f"You may not list {plural}.")
        return into if may_list else None

    async def _watch(
        self,
        what: str,
        kind: type[Any],
        on_put: Callable[[Key, Any], None],
        on_delete: Callable[[Key], None],
        **params: str,
    ) -> bool:
        """Watch a collection, of all namespaces or the reader's; return whether that is allowed."""
        is_path = what.startswith("/")
        paths = [what if is_path else names.path(what)]
        if what in (names.PLURALS[kind] for kind in names.GANG_KINDS):
            paths.append(names.path(what, self.reader.namespace))
        for path in paths:
            if not await self._may_list(path, params):
                continue
            if path is not paths[0]:
                self._is_own_only = True
                self._say_own_only()
            named = path.rpartition("/")[2]
            self._reflectors.append(
                Reflector(
                    self.reader.client, path, kind, on_put, on_delete, dict(params), name=named
                )
            )
            return True
        if len(paths) > 1:
            raise ConsoleError(
                f"you may not list {what} in namespace {self.reader.namespace}:"
                " ask for a role that may, or name another namespace (-n)"
            )
        return False

    async def _may_list(self, path: str, params: Mapping[str, str]) -> bool:
        try:
            await self.reader.client.get(path, params={**params, "limit": "1"})
        except ApiError as error:
            if error.is_forbidden:
                return False
            if not error.is_not_found:
                raise ConsoleError(f"cannot list {path}: {error}") from error
            if path.startswith(names.path("trainingjobs")):
                raise ConsoleError(
                    "the cluster does not know Bireme; install its chart first"
                ) from error
        return True

    def _say_own_only(self) -> None:
        remark = f"You may read only namespace {self.reader.namespace}; positions count all gangs."
        if remark not in self.remarks:
            self.remarks.append(remark)

    # --- events of the watches ---

    def _count_change(self) -> None:
        self.version += 1

    def _putting(self, kind: str) -> Callable[[Key, Manifest], None]:
        def put(key: Key, received: Manifest) -> None:
            manifest = _manifest(kind, key, received)
            self._gangs[kind, *key] = _gang(manifest)
            self._count_change()

        return put

    def _dropping(self, kind: str) -> Callable[[Key], None]:
        def drop(key: Key) -> None:
            self._gangs.pop((kind, *key), None)
            self._count_change()

        return drop

    def _into(
        self, store: dict[str, Json]
    ) -> tuple[Callable[[Key, Manifest], None], Callable[[Key], None]]:
        def put(key: Key, received: Manifest) -> None:
            store[key[1]] = _manifest("", key, received)
            self._count_change()

        def drop(key: Key) -> None:
            store.pop(key[1], None)
            self._count_change()

        return put, drop

    def _put_node(self, key: Key, received: wire.V1Node) -> None:
        node = nodes.from_manifest(received)
        if self._nodes.get(key[1]) != node:  # kubelets write heartbeats all the time
            self._nodes[key[1]], self._table = node, None
            self._count_change()

    def _drop_node(self, key: Key) -> None:
        self._nodes.pop(key[1], None)
        self._table = None
        self._count_change()

    def _put_pod(self, key: Key, received: wire.V1Pod) -> None:
        facts = pods.from_manifest(received)
        if self._other_usage.put(key, "" if facts.is_terminal else facts.node, facts.request):
            self._count_change()

    def _drop_pod(self, key: Key) -> None:
        if self._other_usage.put(key, ""):
            self._count_change()

    # --- the view ---

    def view(self) -> View:
        """Return the current view; it is made anew only after a change."""
        if self._view is None or self._view[0] != self.version:
            self._view = self.version, self._make_view()
        return self._view[1]

    def manifest(self, line: GangLine) -> Json:
        """Return spec and status of a visible gang."""
        gang = self._gangs[line.kind, line.namespace, line.name]
        return {"kind": line.kind, "spec": gang.spec, "status": gang.status}

    def tasks(self, line: GangLine) -> dict[str, int]:
        """Return the replicas of each task of a visible gang, from its status."""
        gang = self._gangs[line.kind, line.namespace, line.name]
        return {str(task["name"]): int(task["replicas"]) for task in gang.status.get("tasks") or ()}

    def devices_reserved_on(self, line: GangLine) -> dict[str, int]:
        """Return the devices that the leader reserves for a gang, by node."""
        by_node = self._reserved.get(line.key, {})
        return {node: sum(devices.values()) for node, devices in sorted(by_node.items())}

    async def answer(self, question: Inquiry) -> what_if.Answered:
        """Return the leader's answer; ConsoleError if there is none, or if it is refused."""
        return await what_if.of_leader(self.reader, self.options, question, _INSTEAD)

    def _make_view(self) -> View:
        gangs = _latest(self._gangs.values())
        settings = SchedulingSettings()
        if self._table is None:
            self._table = NodeTable(list(self._nodes.values()), settings.topology_levels)
        table = self._table
        used = self._other_usage.matrix(table)
        by_gang: dict[int, Counter[str]] = {}
        resource = main_device(table)
        for gang in gangs:
            if gang.plan is None:
                continue
            for member in gang.plan.members:
                row = table.row.get(member.node)
                request = gang.plan.requests.get(member.task, ())
                if row is not None:
                    used[row] += table.axis.usage(request)
                    amount = dict(request).get(resource, 0)
                    by_gang.setdefault(row, Counter())[gang.line.key] += amount
        reserved = np.zeros_like(used)
        kept_for: dict[int, Counter[str]] = {}
        for key, by_node in self._reserved.items():
            for node, devices in by_node.items():
                if (row := table.row.get(node)) is not None:
                    amounts = ((name, n) for name, n in devices.items() if name in table.axis.names)
                    reserved[row] += table.axis.usage(tuple(amounts))
                    kept_for.setdefault(row, Counter())[key] += devices.get(resource, 0)
        column = table.axis.names.index(resource) if resource else 0
        of_device = used[:, column].tolist() if resource else []
        snapshot = ClusterSnapshot(
            now=self.clock(),
            nodes=table,
            used=np.minimum(used, table.allocatable),
            waiting=(),
            queues={},
            settings=settings,
        )
        labels = (settings.node_pool_label, GPU_MODEL_LABEL)
        return View(
            source=self.source,
            now=snapshot.now,
            lines=[gang.line for gang in gangs],
            capacity=tuple(device_uses(snapshot, reserved)),
            queues=tuple(_queues(self._queues)),
            nodes=tuple(node_rows(table, dict(enumerate(of_device)), by_gang, kept_for, labels)),
            spans=tuple(gang.span for gang in gangs if gang.span is not None),
            policies=_in_name_order(self._policies),
            pools=_in_name_order(self._pools),
            queue_manifests=self._queues,
            version=self.version,
            kept_unknown=self._reserved_unknown,
            remarks=tuple(self.remarks),
        )

    async def events(self, line: GangLine) -> list[Json] | None:
        """Return the events of a gang, the latest first; None if they may not be read."""
        events = await self.reader.objects_if_allowed(
            f"/api/v1/namespaces/{line.namespace}/events",
            fieldSelector=f"involvedObject.kind={line.kind},involvedObject.name={line.name}",
        )
        if events is None:
            return None
        return sorted(events, key=_event_time, reverse=True)

    async def pods_of(self, line: GangLine) -> list[Json] | None:
        """Return the pods of a gang by name; None if they may not be read."""
        manifests = await self.reader.objects_if_allowed(
            f"/api/v1/namespaces/{line.namespace}/pods",
            labelSelector=f"{names.POD_GROUP_LABEL}={line.name}",
        )
        if manifests is None:
            return None
        return sorted(manifests, key=lambda pod: str(pod["metadata"]["name"]))

    async def log(self, namespace: str, pod: str, lines: int) -> str:
        """Return the last lines of a pod's log.

        Raises:
            ConsoleError: the log may not be read, or does not exist.
        """
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        try:
            body = await self.reader.client.get(path, params={"tailLines": lines})
        except ApiError as error:
            raise ConsoleError(f"no log of pod {namespace}/{pod}: {error.message}") from error
        return body.decode(errors="replace")

    async def close(self) -> None:
        """End all watches."""
        await self._tasks.close()


def _manifest(kind: str, key: Key, received: Manifest) -> Json:
    about: Json = {"namespace": key[0], "name": key[1]}
    if received.metadata.creation_timestamp is not None:
        about["creationTimestamp"] = received.metadata.creation_timestamp
    return {"kind": kind, "metadata": about, "spec": received.spec, "status": received.status}


def _gang(manifest: Json) -> _Gang:
    line, status, spec = line_of(manifest), manifest["status"], manifest["spec"]
    spec_fields = {name: spec[name] for name in ("runPolicy", "estimatedDuration") if name in spec}
    return _Gang(line, plans.read(status), _span(line, spec, status), status, spec_fields)


def _span(line: GangLine, spec: Json, status: Json) -> Span | None:
    """Return the past, present or expected run of a gang."""
    devices = line.gpus or 0
    begin, lasts = line.since, _seconds(spec.get("estimatedDuration"))
    if line.phase in ENDED_PHASES:
        end = quantities.parse_timestamp(status.get("completionTime"))
        ran = begin is not None and end is not None
        return Span(line.key, "ran", begin or 0.0, end, devices) if ran else None
    if line.waits:
        if line.earliest is None:
            return None
        end = None if lasts is None else line.earliest + lasts
        return Span(line.key, "expected", line.earliest, end, devices)
    if begin is None:
        return None
    return Span(line.key, "runs", begin, None if lasts is None else begin + lasts, devices)


def _seconds(text: object) -> float | None:
    try:
        return quantities.parse_duration(str(text)) if text else None
    except ValueError:
        return None  # the status says what is wrong with it


def _latest(gangs: Collection[_Gang]) -> list[_Gang]:
    ended_gangs = [gang for gang in gangs if gang.line.phase in ENDED_PHASES]
    ended_gangs.sort(key=lambda gang: gang.line.created or 0.0, reverse=True)
    return [gang for gang in gangs if gang.line.phase not in ENDED_PHASES] + ended_gangs[
        :_MAX_ENDED
    ]


def _in_name_order(manifests: Mapping[str, Json] | None) -> list[Json] | None:
    return None if manifests is None else [manifests[name] for name in sorted(manifests)]


def _queues(manifests: Mapping[str, Json]) -> Iterator[QueueRow]:
    parents = ((name, manifest["spec"].get("parent") or "") for name, manifest in manifests.items())
    own_usage = {
        name: _amounts(manifest["status"].get("usage")) for name, manifest in manifests.items()
    }
    for name, depth, used in in_tree(parents, own_usage):
        spec, status = manifests[name]["spec"], manifests[name]["status"]
        yield QueueRow(
            name=name,
            depth=depth,
            state=spec.get("state") or "Open",
            admitted=status.get("admitted") or 0,
            pending=status.get("pending") or 0,
            used=used,
            guaranteed=_amounts(spec.get("guaranteed")),
            limit=_amounts(spec.get("limit")),
        )


def _amounts(quantities_by_name: Json | None) -> dict[str, int]:
    items = (quantities_by_name or {}).items()
    return {name: quantities.parse_quantity(name, amount) for name, amount in items}


def _event_time(event: Json) -> str:
    series = event.get("series") or {}
    observed = (
        series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    )
    return str(observed or event["metadata"].get("creationTimestamp") or "")
