"""``bireme maintenance plan``: preview what ``kubectl drain`` would move; it changes nothing.

The operator's own scheduling cycle decides on a copy of the cluster without the drained nodes. An
eviction is a loss to the whole gang: it starts again where it fits, from its last checkpoint. An
elastic gang continues with fewer replicas, if its first replica and its minimum stay.
"""

import argparse
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
import numpy as np

from bireme import settings_source
from bireme.cli import cluster as common
from bireme.cli import installed
from bireme.cli.arguments import Json
from bireme.cli.cluster import ClusterReader, ConsoleError, ask
from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.errors import BiremeError
from bireme.core.gangs import Gang
from bireme.core.maintenance import placement_without
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
from bireme.tables import align_columns

# --- the policy in force ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the operator, and their source as text."""

    scheduling: SchedulingSettings
    source: str
    checkpoint_directory: str
    """The folder of checkpoints, on the operator's own machine."""
    remarks: tuple[str, ...]
    """Messages about settings that cannot be read."""


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """The operator's policy; ``name`` is its SchedulingPolicy's, empty without one."""

    policy: Policy
    name: str = ""
    remarks: tuple[str, ...] = ()


async def settings_of(reader: ClusterReader, environ: Mapping[str, str]) -> Settings:
    """Return the settings of the operator of the cluster."""
    remarks: tuple[str, ...] = ()
    if named_file := environ.get(CONFIG_VARIABLE):
        document, source = settings_source.document(environ), f"the file {named_file}"
    else:
        document, source, remarks = await _chart_settings(reader)
        stored = settings_source.read(SchedulingSettings, {}, document)
        _refuse_classes(source, stored.orderer, stored.placer, stored.sizer)
    # As for the operator itself, BIREME_ variables take precedence over the file.
    scheduling = settings_source.read(SchedulingSettings, environ, document)
    directory = (document.get("program") or {}).get("checkpointDirectory")
    return Settings(scheduling, source, str(directory or ""), remarks)


async def _chart_settings(reader: ClusterReader) -> tuple[Mapping[str, Any], str, tuple[str, ...]]:
    """Return document, source and remarks of the chart's ConfigMap; without one, the defaults."""
    texts = await installed.settings_texts(reader)
    if texts is not None and len(texts) > 1:
        raise ConsoleError(
            f"the cluster has settings of several operators, in the ConfigMaps "
            f"{', '.join(sorted(texts))}; save {installed.SETTINGS} of the right one and name it by"
            f" {CONFIG_VARIABLE}"
        )
    for name, text in (texts or {}).items():
        source = f"ConfigMap {name}"
        return settings_source.parse(text, f"{installed.SETTINGS} of {source}"), source, ()
    reason = (
        "you may not list ConfigMaps of all namespaces"
        if texts is None
        else "the cluster has no ConfigMap of Bireme's chart"
    )
    remark = (
        f"the operator's settings are unknown, as {reason}; name their file by {CONFIG_VARIABLE}"
    )
    return {}, "the default settings", (remark,)


def policy_in_force(active: PolicyFacts | None, settings: Settings) -> PolicyInForce:
    """Return the policy in force: of the SchedulingPolicy ``active``, or else of the settings."""
    remarks: tuple[str, ...] = ()
    if active is not None:
        try:
            if active.spec is None:
                raise ConsoleError(active.fault)
            source = msgspec.convert(active.names, lookup.PolicySource)
            _refuse_classes(active.name, source.orderer, source.placer, source.sizer)
            directory = settings.checkpoint_directory
            policy, _ = lookup.policy_of(source, settings.scheduling, make_policy, directory)
            return PolicyInForce(policy, active.name)
        except (BiremeError, ImportError) as error:
            remark = (
                f"SchedulingPolicy {active.name} decides in the cluster and cannot be loaded "
                f"here: {cleaned(str(error))}; this preview uses the policy of the settings"
            )
            remarks = (remark,)
    try:
        return PolicyInForce(make_policy(settings.scheduling), remarks=remarks)
    except (BiremeError, ImportError) as error:
        raise ConsoleError(
            f"the policy of {settings.source} cannot be loaded here: {error}; save the settings, "
            f"name another policy in them, and name the file by {CONFIG_VARIABLE}"
        ) from error


def _refuse_classes(whose: str, *policies: str) -> None:
    """Raise ConsoleError if one of ``policies`` is a class."""
    for name in policies:  # no cluster may decide which modules are imported here
        if ":" in name and not name.startswith(CHECKPOINT):
            raise ConsoleError(
                f"{whose} names {name!r}, code of the cluster, which this command runs only from "
                f"a settings file that you name by {CONFIG_VARIABLE}"
            )


# --- the effect on gangs -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Move:
    """The effect of the drain on one gang.

    Attributes:
        replicas: Number of its replicas on the drained nodes.
        effect: The gang continues without them, restarts elsewhere at once, or waits.
        message: The new places, or the reason, in the operator's own words.
    """

    gang: Gang
    replicas: int
    effect: Literal["shrinks", "restarts", "waits"]
    message: str


def preview(snapshot: ClusterSnapshot, drained: Collection[str], policy: Policy) -> list[Move]:
    """Return the effect on every gang with replicas on ``drained`` nodes, by namespace and name."""
    rows = np.array(sorted(snapshot.nodes.row[name] for name in drained), dtype=np.int64)
    affected = {r.gang.uid: r for r in snapshot.running if sum(_replicas_on(rows, r).values())}
    whole = {
        uid: r for uid, r in affected.items() if placement_without(r, rows, snapshot.nodes) is None
    }
    decision = run_cycle(_without(snapshot, whole, drained), policy)
    moves = [_move(running, rows, uid in whole, decision) for uid, running in affected.items()]
    return sorted(moves, key=lambda move: move.gang.key)


def _replicas_on(rows: IntArray, running: RunningGang) -> dict[str, int]:
    return {
        task.task: int(task.counts[np.isin(task.rows, rows)].sum())
        for task in running.placement.tasks
    }


def _without(
    snapshot: ClusterSnapshot, whole: dict[str, RunningGang], drained: Collection[str]
) -> ClusterSnapshot:
    """Return the cluster after the drain: nodes are cordoned, and the ``whole`` gangs wait."""
    nodes = snapshot.nodes.with_nodes(
        [replace(n, is_cordoned=n.is_cordoned or n.name in drained) for n in snapshot.nodes.nodes]
    )
    used, queue_usage = snapshot.used.copy(), {**snapshot.queue_usage}
    for running in whole.values():
        index, amounts = running.usage(snapshot.nodes.axis)
        np.subtract.at(used, index, amounts)
        queue = running.gang.queue
        queue_usage[queue] = add(dict(queue_usage.get(queue, {})), running.current.demand, -1)
    # Run time does not count as waiting, so no gang is past its wait bound.
    requeued = [
        replace(
            running.gang,
            arrived=snapshot.now,
            attained_seconds=snapshot.attained_seconds(running.gang),
        )
        for running in whole.values()
    ]
    return replace(
        snapshot,
        nodes=nodes,
        used=used,
        waiting=(*snapshot.waiting, *requeued),
        queue_usage=queue_usage,
        running=tuple(r for r in snapshot.running if r.gang.uid not in whole),
        known_table=None,
    )


def _move(running: RunningGang, rows: IntArray, is_whole: bool, decision: Decision) -> Move:
    gang, replicas = running.gang, sum(_replicas_on(rows, running).values())
    if not is_whole:
        remaining = sum(running.sizes.values()) - replicas
        return Move(gang, replicas, "shrinks", f"continues with {remaining} replicas")
    for admit in decision.admitted:
        if admit.gang.uid == gang.uid:
            return Move(gang, replicas, "restarts", admit.message)
    hold_decision = next(hold for hold in decision.held if hold.gang.uid == gang.uid)
    return Move(gang, replicas, "waits", f"{hold_decision.reason}: {hold_decision.message}")


# --- the command -------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", nargs="+", metavar="NODE", help="nodes that would be drained")
    common.add_target(parser, namespaced=False)
    common.add_output(parser)


def run(options: argparse.Namespace) -> int:
    async def question(reader: ClusterReader) -> tuple[Settings, ClusterState, int]:
        settings = await settings_of(reader, os.environ)
        return settings, *await state_of(reader, settings.scheduling, options.node)

    settings, state, other_pods = ask(options, question)
    for name in options.node:
        if state.nodes.get(name) is None:
            raise ConsoleError(f"argument NODE: there is no node {name!r}; see: kubectl get nodes")
    decider = policy_in_force(state.policies.active, settings)
    snapshot = state.snapshot(time.time())  # noqa: TID251  # a person asks now
    moves = preview(snapshot, options.node, decider.policy)
    beside_it = (
        f"SchedulingPolicy {canary.name} is a canary for {', '.join(canary.queues)}; this preview "
        "ignores it"
        for canary in state.policies.canaries
    )
    remarks = [*settings.remarks, *decider.remarks, *map(cleaned, beside_it)]
    data = {
        "nodes": options.node,
        "gangs": [
            {
                "kind": move.gang.kind,
                "namespace": move.gang.namespace,
                "name": move.gang.name,
                "replicas": move.replicas,
                "effect": move.effect,
                "message": move.message,
            }
            for move in moves
        ],
        "otherPods": other_pods,
        "decidedBy": {"settings": settings.source, "policy": decider.name or None},
        "remarks": remarks,
    }
    data = common.with_version("DrainPreview", data)
    common.write(options.output, data, _text(moves, other_pods))
    if moves:
        named = f" and SchedulingPolicy {decider.name}" if decider.name else ""
        remarks.append(f"a preview by {settings.source}{named}; nothing has been moved")
    sys.stderr.writelines(f"bireme: {remark}\n" for remark in remarks)
    return 0


async def state_of(
    reader: ClusterReader, settings: SchedulingSettings, drained: Collection[str]
) -> tuple[ClusterState, int]:
    """Return the cluster as the operator sees it, and how many other pods a drain would move."""
    state = ClusterState(settings)
    tenancy = state.tenancy
    feeds: list[tuple[str, type[Any], Any]] = [
        ("/api/v1/nodes", wire.V1Node, state.nodes.put),
        ("/api/v1/namespaces", wire.MetadataOnly, tenancy.put_namespace),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            wire.V1PriorityClass,
            tenancy.put_priority_class,
        ),
        (names.path("queues"), wire.CustomObject, tenancy.put_queue),
        (names.path("schedulingpolicies"), wire.CustomObject, state.policies.put),
        (names.path("trainingjobs"), wire.CustomObject, state.objects.put_job),
        (names.path("podgroups"), wire.CustomObject, state.objects.put_group),
    ]
    for path, kind, put in feeds:
        for manifest in await reader.objects(path):
            put(*_decode(manifest, kind))
    other_pods = 0
    for manifest in await reader.objects(pods.PATH):
        key, pod = _decode(manifest, wire.V1Pod)
        if names.POD_GROUP_LABEL in (pod.metadata.labels or {}):
            state.objects.put_member(key, pod)
        else:
            state.objects.put_other_pod(key, pod)
            # As kubectl drain, which does not move ended pods and those of DaemonSets.
            is_moved = pod.status.phase not in pods.TERMINAL and not pods.never_leaves(pod)
            other_pods += is_moved and pod.spec.node_name in drained
    state.objects.learn(state.objects.jobs.values())
    return state, other_pods


def _decode(manifest: Json, kind: type[Any]) -> tuple[tuple[str, str], Any]:
    """Return key and object as a reflector hands them over."""
    about = manifest["metadata"]
    decoded = msgspec.json.decode(msgspec.json.encode(manifest), type=kind)
    return (about.get("namespace", ""), about["name"]), decoded


def _text(moves: Sequence[Move], other_pods: int) -> str:
    rows = [["NAMESPACE", "NAME", "REPLICAS", "EFFECT", "WHERE OR WHY"]]
    for move in moves:
        gang = move.gang
        rows.append([gang.namespace, gang.name, str(move.replicas), move.effect, move.message])
    lines = (
        align_columns(rows, flush_left=len(rows[0])) if moves else ["No gang has a replica there."]
    )
    if other_pods:
        lines.append(f"Other pods there, which kubectl drain moves: {other_pods}.")
    return "\n".join(lines) + "\n"
