"""The board of a cluster: watches with the reader's own rights, and a view of what they bring.

Where the reader may not see all namespaces, the board shows their own, and says so.
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

from bireme.cli import leader_reservations, what_if
from bireme.cli.arguments import Json
from bireme.cli.cluster import ConsoleError, Reader
from bireme.cli.gangs import ENDED, GangLine, line_of
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
from bireme.kube.cluster_state import NodeUsage
from bireme.kube.conditions import cleaned
from bireme.kube.plans import PlanFacts
from bireme.kube.watch import Reflector
from bireme.replay.what_if import Asked
from bireme.tasks import Tasks

_SYNC_SECONDS: Final = 30.0
_FIRST_SECONDS: Final = 3.0
_ASK_SECONDS: Final = 10.0
_ASK_AGAIN_SECONDS: Final = 60.0
"""After no answer: the setting may be off."""
_MAX_ENDED: Final = 500
"""Of gangs that have ended, the latest; a cluster may keep them for weeks."""


class Manifest(wire.MetadataOnly, frozen=True):
    """An object as it is written, but for most of its metadata."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Gang:
    """A TrainingJob or PodGroup as pages show it; its plan and what the timeline needs."""

    line: GangLine
    plan: PlanFacts | None
    span: Span | None
    status: Json
    spec: Json


@dataclass(slots=True)
class Live:
    """What a reader sees of a cluster, kept up to date by watches; ``version`` counts the changes.

    Attributes:
        options: How the leader is reached, as of :func:`bireme.cli.leader.add_leader`.
        clock: POSIX seconds.

    Which places are kept, the leader alone knows. It is asked while somebody looks.
    """

    reader: Reader
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
    _others: NodeUsage = field(default_factory=NodeUsage)
    _reflectors: list[Reflector[Any]] = field(default_factory=list)
    _tasks: Tasks = field(default_factory=Tasks)
    _view: tuple[int, View] | None = None
    _table: NodeTable | None = None
    _is_own_only: bool = False
    _kept: leader_reservations.Kept = field(default_factory=dict)
    _kept_unknown: str = "The leader has not answered yet."
    _ask_after: float = 0.0
    """By the clock of the loop; without end while the leader is being asked."""

    # --- what is watched ---

    async def start(self) -> None:
        """Begin to watch, and return once everything has been listed.

        Raises:
            ConsoleError: the cluster does not answer, or nothing may be seen.
        """
        for kind in names.GANG_KINDS:
            plural = names.PLURALS[kind]
            await self._watch(plural, Manifest, self._putting(kind), self._dropping(kind))
        await self._watch("queues", Manifest, *self._into(self._queues))
        self._policies = await self._optional("schedulingpolicies", {})
        self._pools = await self._optional("nodepoolscalers", {})
        if not await self._watch("/api/v1/nodes", wire.V1Node, self._put_node, self._drop_node):
            self.remarks.append("You may not list nodes: no capacity and no nodes are shown.")
        elif not await self._watch(
            pods.PATH, wire.V1Pod, self._put_pod, self._drop_pod, **pods.NON_MEMBERS
        ):
            self.remarks.append("You may not list all pods: what is of no gang counts as free.")
        for reflector in self._reflectors:
            self._tasks.start(reflector.run())
        try:
            async with asyncio.timeout(_SYNC_SECONDS):
                await asyncio.gather(*(each.synced.wait() for each in self._reflectors))
        except TimeoutError:
            late = [each.name for each in self._reflectors if not each.synced.is_set()]
            raise ConsoleError(
                f"no list of {', '.join(late)} within {_SYNC_SECONDS:g} s; is the API server well?"
            ) from None
        with suppress(TimeoutError):  # the page completes itself later
            async with asyncio.timeout(_FIRST_SECONDS):
                await self._ask_kept()

    def refresh(self) -> None:
        """Have the leader say again which places it keeps, if it has not just been asked."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._ask_after:
            self._ask_after = math.inf
            self._tasks.start(self._ask_kept())

    async def _ask_kept(self) -> None:
        before, pause = (self._kept, self._kept_unknown), _ASK_SECONDS
        own = [self.reader.namespace] if self._is_own_only else []
        try:
            found = await leader_reservations.fetch(self.reader, self.options, own)
            self._kept, self._kept_unknown = found, ""
        except BiremeError as error:
            self._kept, self._kept_unknown = {}, f"{cleaned(str(error))}."
            pause = _ASK_AGAIN_SECONDS
        finally:
            self._ask_after = asyncio.get_running_loop().time() + pause
        if before != (self._kept, self._kept_unknown):
            self._changed()

    @property
    def is_live(self) -> bool:
        """False while a watch is interrupted: what is shown may be old."""
        return all(reflector.is_live for reflector in self._reflectors)

    async def _optional(self, plural: str, into: dict[str, Json]) -> dict[str, Json] | None:
        found = await self._watch(plural, Manifest, *self._into(into))
        if not found:
            self.remarks.append(f"You may not list {plural}.")
        return into if found else None

    async def _watch(
        self,
        what: str,
        kind: type[Any],
        on_put: Callable[[Key, Any], None],
        on_delete: Callable[[Key], None],
        **params: str,
    ) -> bool:
        """Watch a collection, in all namespaces or in the reader's; return whether they may."""
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
        words = f"You may see namespace {self.reader.namespace} only; positions count everybody."
        if words not in self.remarks:
            self.remarks.append(words)

    # --- what comes ---

    def _changed(self) -> None:
        self.version += 1

    def _putting(self, kind: str) -> Callable[[Key, Manifest], None]:
        def put(key: Key, found: Manifest) -> None:
            manifest = _manifest(kind, key, found)
            self._gangs[kind, *key] = _gang(manifest)
            self._changed()

        return put

    def _dropping(self, kind: str) -> Callable[[Key], None]:
        def drop(key: Key) -> None:
            self._gangs.pop((kind, *key), None)
            self._changed()

        return drop

    def _into(
        self, known: dict[str, Json]
    ) -> tuple[Callable[[Key, Manifest], None], Callable[[Key], None]]:
        def put(key: Key, found: Manifest) -> None:
            known[key[1]] = _manifest("", key, found)
            self._changed()

        def drop(key: Key) -> None:
            known.pop(key[1], None)
            self._changed()

        return put, drop

    def _put_node(self, key: Key, found: wire.V1Node) -> None:
        node = nodes.from_manifest(found)
        if self._nodes.get(key[1]) != node:  # kubelets write heartbeats all the time
            self._nodes[key[1]], self._table = node, None
            self._changed()

    def _drop_node(self, key: Key) -> None:
        self._nodes.pop(key[1], None)
        self._table = None
        self._changed()

    def _put_pod(self, key: Key, found: wire.V1Pod) -> None:
        facts = pods.from_manifest(found)
        if self._others.put(key, "" if facts.is_terminal else facts.node, facts.request):
            self._changed()

    def _drop_pod(self, key: Key) -> None:
        if self._others.put(key, ""):
            self._changed()

    # --- what is shown ---

    def view(self) -> View:
        """Return the view of now; it is made again only after a change."""
        if self._view is None or self._view[0] != self.version:
            self._view = self.version, self._made()
        return self._view[1]

    def manifest(self, line: GangLine) -> Json:
        """Return spec and status of a gang that is shown."""
        gang = self._gangs[line.kind, line.namespace, line.name]
        return {"kind": line.kind, "spec": gang.spec, "status": gang.status}

    def tasks(self, line: GangLine) -> dict[str, int]:
        """Return the replicas of each task of a gang that is shown, as its status has them."""
        gang = self._gangs[line.kind, line.namespace, line.name]
        return {str(task["name"]): int(task["replicas"]) for task in gang.status.get("tasks") or ()}

    def kept_on(self, line: GangLine) -> dict[str, int]:
        """Return the devices that the leader keeps for a gang, by node."""
        by_node = self._kept.get(line.key, {})
        return {node: sum(devices.values()) for node, devices in sorted(by_node.items())}

    async def answer(self, asked: Asked) -> what_if.Answered:
        """Return the leader's answer; ConsoleError where there is none, or not for the reader."""
        otherwise = "open a record: bireme ui RECORD"
        return await what_if.of_leader(self.reader, self.options, asked, otherwise)

    def _made(self) -> View:
        gangs = _latest(self._gangs.values())
        settings = SchedulingSettings()
        if self._table is None:
            self._table = NodeTable(list(self._nodes.values()), settings.topology_levels)
        table = self._table
        used = self._others.matrix(table)
        held: dict[int, Counter[str]] = {}
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
                    held.setdefault(row, Counter())[gang.line.key] += amount
        kept = np.zeros_like(used)
        kept_for: dict[int, Counter[str]] = {}
        for key, by_node in self._kept.items():
            for node, devices in by_node.items():
                if (row := table.row.get(node)) is not None:
                    known = ((name, n) for name, n in devices.items() if name in table.axis.names)
                    kept[row] += table.axis.usage(tuple(known))
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
            capacity=tuple(device_uses(snapshot, kept)),
            queues=tuple(_queues(self._queues)),
            nodes=tuple(node_rows(table, dict(enumerate(of_device)), held, kept_for, labels)),
            spans=tuple(gang.span for gang in gangs if gang.span is not None),
            policies=_listed(self._policies),
            pools=_listed(self._pools),
            queue_manifests=self._queues,
            version=self.version,
            kept_unknown=self._kept_unknown,
            remarks=tuple(self.remarks),
        )

    async def events(self, line: GangLine) -> list[Json] | None:
        """Return the events of a gang, the latest first; None if they may not be read."""
        found = await self.reader.objects_if_allowed(
            f"/api/v1/namespaces/{line.namespace}/events",
            fieldSelector=f"involvedObject.kind={line.kind},involvedObject.name={line.name}",
        )
        if found is None:
            return None
        return sorted(found, key=_event_time, reverse=True)

    async def pods_of(self, line: GangLine) -> list[Json] | None:
        """Return the pods of a gang by name; None if they may not be read."""
        found = await self.reader.objects_if_allowed(
            f"/api/v1/namespaces/{line.namespace}/pods",
            labelSelector=f"{names.POD_GROUP_LABEL}={line.name}",
        )
        if found is None:
            return None
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    async def log(self, namespace: str, pod: str, lines: int) -> str:
        """Return the last lines of a pod's log.

        Raises:
            ConsoleError: it may not be read, or there is none.
        """
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        try:
            found = await self.reader.client.get(path, params={"tailLines": lines})
        except ApiError as error:
            raise ConsoleError(f"no log of pod {namespace}/{pod}: {error.message}") from error
        return found.decode(errors="replace")

    async def close(self) -> None:
        """End all watches."""
        await self._tasks.close()


def _manifest(kind: str, key: Key, found: Manifest) -> Json:
    about: Json = {"namespace": key[0], "name": key[1]}
    if found.metadata.creation_timestamp is not None:
        about["creationTimestamp"] = found.metadata.creation_timestamp
    return {"kind": kind, "metadata": about, "spec": found.spec, "status": found.status}


def _gang(manifest: Json) -> _Gang:
    line, status, spec = line_of(manifest), manifest["status"], manifest["spec"]
    kept = {name: spec[name] for name in ("runPolicy", "estimatedDuration") if name in spec}
    return _Gang(line, plans.read(status), _span(line, spec, status), status, kept)


def _span(line: GangLine, spec: Json, status: Json) -> Span | None:
    """Return when a gang ran or runs; or will, from its estimated start on."""
    devices = line.gpus or 0
    begin, lasts = line.since, _seconds(spec.get("estimatedDuration"))
    if line.phase in ENDED:
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
    ended = [gang for gang in gangs if gang.line.phase in ENDED]
    ended.sort(key=lambda gang: gang.line.created or 0.0, reverse=True)
    return [gang for gang in gangs if gang.line.phase not in ENDED] + ended[:_MAX_ENDED]


def _listed(known: Mapping[str, Json] | None) -> list[Json] | None:
    return None if known is None else [known[name] for name in sorted(known)]


def _queues(manifests: Mapping[str, Json]) -> Iterator[QueueRow]:
    parents = ((name, each["spec"].get("parent") or "") for name, each in manifests.items())
    own = {name: _amounts(each["status"].get("usage")) for name, each in manifests.items()}
    for name, depth, used in in_tree(parents, own):
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
    known = (quantities_by_name or {}).items()
    return {name: quantities.parse_quantity(name, amount) for name, amount in known}


def _event_time(event: Json) -> str:
    series = event.get("series") or {}
    seen = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(seen or event["metadata"].get("creationTimestamp") or "")
