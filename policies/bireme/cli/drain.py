"""``bireme drain``: preview what ``kubectl drain`` would move; nothing in the cluster is changed.

The operator's own scheduling cycle decides on a copy of the cluster without the drained nodes. An
eviction is a loss to the gang as a whole: it starts again where it fits, from its last checkpoint.
An elastic gang goes on smaller, as long as its first replica and its minimum stay.

The settings are those of ``--config``, else of the ConfigMap that the chart installs; as for the
operator itself, ``BIREME_`` variables of the environment win. What cannot be known here is a
remark in the answer.
"""

import argparse
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from bireme import settings_source
from bireme.cli import cluster as common
from bireme.cli.arguments import naming
from bireme.cli.cluster import ConsoleError, Json, Reader, ask
from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.errors import BiremeError
from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.policy import Policy
from bireme.core.resources import IntArray, add
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import names, pods, wire
from bireme.kube.cluster_state import ClusterState
from bireme.kube.conditions import cleaned
from bireme.kube.policy_source import PolicyFacts
from bireme.registry import CHECKPOINT, make_policy
from bireme.rl import lookup
from bireme.settings_source import CONFIG_VARIABLE
from bireme.tables import aligned

# --- the policy in force ----------------------------------------------------------------------

_CONFIG_MAPS: Final = "/api/v1/configmaps"
_OF_OPERATOR: Final = "app.kubernetes.io/name=bireme,app.kubernetes.io/component=operator"
_KEY: Final = "settings.yaml"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the operator.

    Attributes:
        source: Where that was read, in words.
        checkpoint_directory: Where the operator looks for checkpoints, on its own machine.
        remarks: What the reader of an answer must know.
    """

    scheduling: SchedulingSettings
    source: str
    checkpoint_directory: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """A policy as the operator has it; ``name`` of its SchedulingPolicy, empty without one."""

    policy: Policy
    name: str = ""
    remarks: tuple[str, ...] = ()


async def settings_of(reader: Reader, environ: Mapping[str, str]) -> Settings:
    """The settings of the operator that ``reader`` is connected to.

    Raises:
        ConsoleError: the cluster has the settings of several operators, or theirs name code.
        SettingError: a setting has a value it cannot have.
    """
    remarks: tuple[str, ...] = ()
    if named_file := environ.get(CONFIG_VARIABLE):
        document, source = settings_source.document(environ), f"the file {named_file}"
    else:
        document, source, remarks = await _installed(reader)
        told = settings_source.read(SchedulingSettings, {}, document)
        _refuse_classes(source, told.orderer, told.placer, told.sizer)
    scheduling = settings_source.read(SchedulingSettings, environ, document)
    operator = document.get("operator") or {}
    directory = str(operator.get("checkpointDirectory") or "")
    return Settings(scheduling, source, directory, remarks)


async def _installed(reader: Reader) -> tuple[Mapping[str, Any], str, tuple[str, ...]]:
    """Document, source and remarks of the chart's ConfigMap; the defaults without one."""
    listed = await reader.objects_if_allowed(_CONFIG_MAPS, labelSelector=_OF_OPERATOR)
    found = {
        f"{each['metadata']['namespace']}/{each['metadata']['name']}": each["data"][_KEY]
        for each in listed or ()
        if _KEY in (each.get("data") or {})
    }
    if len(found) > 1:
        raise ConsoleError(
            f"the cluster has settings of several operators, in the ConfigMaps "
            f"{', '.join(sorted(found))}; save {_KEY} of the right one and name it by --config"
        )
    for name, text in found.items():
        source = f"ConfigMap {name}"
        return settings_source.parse(text, f"{_KEY} of {source}"), source, ()
    why = (
        "you may not list ConfigMaps of all namespaces"
        if listed is None
        else "the cluster has no ConfigMap of Bireme's chart"
    )
    remark = f"the operator's settings are unknown, as {why}; name their file by --config"
    return {}, "the default settings", (remark,)


def policy_in_force(active: PolicyFacts | None, settings: Settings) -> PolicyInForce:
    """Return the policy in force: of the SchedulingPolicy ``active``, or else of the settings.

    Raises:
        ConsoleError: the settings name a policy that cannot be loaded here.
    """
    remarks: tuple[str, ...] = ()
    if active is not None:
        try:
            return PolicyInForce(_policy_of(active, settings), active.name)
        except (BiremeError, ImportError) as error:
            remark = (
                f"SchedulingPolicy {active.name} counts in the cluster and cannot be loaded here: "
                f"{cleaned(str(error))}; the policy of the settings has decided instead"
            )
            remarks = (remark,)
    try:
        return PolicyInForce(make_policy(settings.scheduling), remarks=remarks)
    except (BiremeError, ImportError) as error:
        raise ConsoleError(
            f"the policy of {settings.source} cannot be loaded here: {error}; save the settings, "
            "name another policy in them, and name the file by --config"
        ) from error


def _policy_of(active: PolicyFacts, settings: Settings) -> Policy:
    if active.spec is None:
        raise ConsoleError(active.fault)
    source = lookup.PolicySource(**active.names)
    _refuse_classes(active.name, source.orderer, source.placer, source.sizer)
    directory = settings.checkpoint_directory
    policy, _ = lookup.policy_of(source, settings.scheduling, make_policy, directory)
    return policy


def _refuse_classes(whose: str, *policies: str) -> None:
    """ConsoleError for a class: no cluster has a say in which modules are imported here."""
    for name in policies:
        if ":" in name and not name.startswith(CHECKPOINT):
            raise ConsoleError(
                f"{whose} names {name!r}, code of the cluster's own, which is run here only from a "
                "settings file that you name by --config"
            )


# --- what would move ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Move:
    """The effect of the drain on one gang.

    Attributes:
        replicas: How many of its replicas are on the nodes that are drained.
        shrinks: Whether it goes on without them.
        starts_again: Whether it would be started elsewhere at once.
        message: Where, or why not, in the operator's own words.
    """

    gang: Gang
    replicas: int
    shrinks: bool
    starts_again: bool
    message: str


def preview(snapshot: ClusterSnapshot, drained: Collection[str], policy: Policy) -> list[Move]:
    """Return the effect on every gang with replicas on ``drained`` nodes, by namespace and name.

    Raises KeyError for a node that is not in ``snapshot``.
    """
    rows = np.array(sorted(snapshot.nodes.row[name] for name in drained), dtype=np.int64)
    there = {r.gang.uid: r for r in snapshot.running if _on(r, rows)}
    whole = {uid: r for uid, r in there.items() if not _goes_on(r, rows)}
    decision = run_cycle(_without(snapshot, whole, drained), policy)
    moves = [_move(running, rows, uid in whole, decision) for uid, running in there.items()]
    return sorted(moves, key=lambda move: move.gang.key)


def _on(running: RunningGang, rows: IntArray) -> int:
    """Return the number of its replicas on ``rows``."""
    return sum(_counted(running, rows).values())


def _counted(running: RunningGang, rows: IntArray) -> dict[str, int]:
    return {
        task.task: int(task.counts[np.isin(task.rows, rows)].sum())
        for task in running.placement.tasks
    }


def _goes_on(running: RunningGang, rows: IntArray) -> bool:
    """Return True if the elastic gang can lose its replicas there."""
    if not running.gang.is_elastic or running.anchor_row in rows:
        return False
    lost = _counted(running, rows)
    least = {task.name: task.replicas for task in running.gang.at_minimum.tasks}
    sizes = running.sizes
    return all(sizes.get(name, 0) - lost.get(name, 0) >= fewest for name, fewest in least.items())


def _without(
    snapshot: ClusterSnapshot,
    whole: dict[str, RunningGang],
    drained: Collection[str],
) -> ClusterSnapshot:
    """The cluster after the drain: its nodes are cordoned, and gangs of them wait again."""
    nodes = NodeTable(
        [replace(n, is_cordoned=n.is_cordoned or n.name in drained) for n in snapshot.nodes.nodes],
        snapshot.nodes.topology_levels,
    )
    used, queue_usage = snapshot.used.copy(), {**snapshot.queue_usage}
    for running in whole.values():
        at, amounts = running.usage(snapshot.nodes.axis)
        np.subtract.at(used, at, amounts)
        queue = running.gang.queue
        queue_usage[queue] = add(dict(queue_usage.get(queue, {})), running.current.demand, -1)
    again = [replace(running.gang, arrived=snapshot.now) for running in whole.values()]
    return replace(
        snapshot,
        nodes=nodes,
        used=used,
        waiting=(*snapshot.waiting, *again),
        queue_usage=queue_usage,
        running=tuple(r for r in snapshot.running if r.gang.uid not in whole),
        known_table=None,
    )


def _move(running: RunningGang, rows: IntArray, is_whole: bool, decision: Decision) -> Move:
    gang, replicas = running.gang, _on(running, rows)
    if not is_whole:
        left = sum(running.sizes.values()) - replicas
        return Move(gang, replicas, True, False, f"goes on with {left} replicas")
    for admit in decision.admitted:
        if admit.gang.uid == gang.uid:
            return Move(gang, replicas, False, True, admit.message)
    held = next(hold for hold in decision.held if hold.gang.uid == gang.uid)
    return Move(gang, replicas, False, False, f"{held.reason}: {held.message}")


_PODS: Final = "/api/v1/pods"


# --- the command -------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Teach ``parser`` what ``bireme drain`` understands."""
    parser.add_argument("node", nargs="+", metavar="NODE", help="nodes that would be drained")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the operator's settings; default: those of BIREME_CONFIG, else those that the chart "
        "has installed",
    )
    common.add_target(parser, namespaced=False)
    common.add_output(parser)


def run(options: argparse.Namespace, _arguments: Sequence[str]) -> int:
    """Show what would move; the exit status.

    Raises:
        ConsoleError: there is no such node, or the settings in the cluster cannot be used.
        UsageError: the settings that ``--config`` names cannot be used.
    """
    environ = {**os.environ, **({CONFIG_VARIABLE: str(options.config)} if options.config else {})}

    async def question(reader: Reader) -> tuple[Settings, ClusterState, int]:
        with naming("--config") if options.config else nullcontext():
            settings = await settings_of(reader, environ)
        return settings, *await state_of(reader, settings.scheduling, options.node)

    settings, state, beside = ask(common.target(options), question)
    for name in options.node:
        if state.node(name) is None:
            raise ConsoleError(f"argument NODE: there is no node {name!r}; see: kubectl get nodes")
    decider = policy_in_force(state.policies.active, settings)
    snapshot = state.snapshot(time.time())  # noqa: TID251  # a person asks now
    moves = preview(snapshot, options.node, decider.policy)
    remarks = [*settings.remarks, *decider.remarks]
    data = {
        "nodes": options.node,
        "gangs": [_data(m) for m in moves],
        "otherPods": beside,
        "decidedBy": {"settings": settings.source, "policy": decider.name or None},
        "remarks": remarks,
    }
    common.write(options.output, data, _text(moves, beside))
    for remark in [*remarks, *([_decided(settings, decider)] if moves else [])]:
        sys.stderr.write(f"bireme: {remark}\n")
    return 0


async def state_of(
    reader: Reader, settings: SchedulingSettings, drained: Collection[str]
) -> tuple[ClusterState, int]:
    """The cluster as the operator would see it, and how many other pods a drain would move."""
    state = ClusterState(settings)
    standing = state.tenancy
    feeds: list[tuple[str, type[Any], Any]] = [
        ("/api/v1/nodes", wire.V1Node, state.put_node),
        ("/api/v1/namespaces", wire.V1Namespace, standing.put_namespace),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            wire.V1PriorityClass,
            standing.put_priority_class,
        ),
        (names.path("queues"), wire.CustomObject, standing.put_queue),
        (names.path("schedulingpolicies"), wire.CustomObject, state.policies.put),
        (names.path("trainingjobs"), wire.CustomObject, state.put_job),
        (names.path("podgroups"), wire.CustomObject, state.put_group),
    ]
    for path, kind, put in feeds:
        for manifest in await reader.objects(path):
            put(*_decoded(manifest, kind))
    beside = 0
    for manifest in await reader.objects(_PODS):
        key, pod = _decoded(manifest, wire.V1Pod)
        if names.POD_GROUP_LABEL in (pod.metadata.labels or {}):
            state.put_member(key, pod)
        else:
            state.put_other_pod(key, pod)
            beside += pod.spec.node_name in drained and _is_moved(pod)
    state.run_times.learn(state.jobs.values())
    return state, beside


def _is_moved(pod: wire.V1Pod) -> bool:
    """Return True if ``kubectl drain`` would evict the pod."""
    return pod.status.phase not in pods.TERMINAL and not pods.never_leaves(pod)


def _decoded(manifest: Json, kind: type[Any]) -> tuple[tuple[str, str], Any]:
    """Key and object as a reflector hands them over."""
    about = manifest["metadata"]
    made = msgspec.json.decode(msgspec.json.encode(manifest), type=kind)
    return (about.get("namespace", ""), about["name"]), made


def _decided(settings: Settings, decider: PolicyInForce) -> str:
    policy = f" and SchedulingPolicy {decider.name}" if decider.name else ""
    return f"a preview by {settings.source}{policy}; nothing has been moved"


def _data(move: Move) -> Json:
    gang = move.gang
    return {
        "kind": gang.kind,
        "namespace": gang.namespace,
        "name": gang.name,
        "replicas": move.replicas,
        "effect": _effect(move),
        "message": move.message,
    }


def _effect(move: Move) -> str:
    if move.shrinks:
        return "shrinks"
    return "restarts" if move.starts_again else "waits"


def _text(moves: Sequence[Move], beside: int) -> str:
    rows = [["NAMESPACE", "NAME", "REPLICAS", "EFFECT", "WHERE OR WHY"]]
    for move in moves:
        gang = move.gang
        rows.append([gang.namespace, gang.name, str(move.replicas), _effect(move), move.message])
    lines = aligned(rows, left=len(rows[0])) if moves else ["No gang has a replica there."]
    if beside:
        lines.append(f"Pods there that are not Bireme's, which kubectl drain moves: {beside}.")
    return "\n".join(lines) + "\n"
