"""``bireme drain``: a preview of what ``kubectl drain`` would move; it moves nothing itself."""

import argparse
import os
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import msgspec

from bireme.command_line import aligned, naming
from bireme.console import options as common
from bireme.console.deciding import PolicyInForce, Settings, policy_in_force, settings_of
from bireme.console.draining import Move, preview
from bireme.console.errors import ConsoleError
from bireme.console.reading import Json, Reader, ask
from bireme.core.settings import SchedulingSettings
from bireme.kube import names, pods, wire
from bireme.kube.cluster_state import ClusterState
from bireme.kube.settings_source import CONFIG_VARIABLE

_PODS: Final = "/api/v1/pods"


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
    standing = state.standing
    feeds: list[tuple[str, type[Any], Any]] = [
        ("/api/v1/nodes", wire.Node, state.put_node),
        ("/api/v1/namespaces", wire.Namespace, standing.put_namespace),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            wire.PriorityClass,
            standing.put_priority_class,
        ),
        (names.path("queues"), wire.Custom, standing.put_queue),
        (names.path("schedulingpolicies"), wire.Custom, state.policies.put),
        (names.path("trainingjobs"), wire.Custom, state.put_job),
        (names.path("podgroups"), wire.Custom, state.put_group),
    ]
    for path, kind, put in feeds:
        for manifest in await reader.objects(path):
            put(*_decoded(manifest, kind))
    beside = 0
    for manifest in await reader.objects(_PODS):
        key, pod = _decoded(manifest, wire.Pod)
        if names.POD_GROUP_LABEL in (pod.metadata.labels or {}):
            state.put_member(key, pod)
        else:
            state.put_other_pod(key, pod)
            beside += pod.spec.node_name in drained and _is_moved(pod)
    state.run_times.learn(state.jobs.values())
    return state, beside


def _is_moved(pod: wire.Pod) -> bool:
    """Whether ``kubectl drain`` would evict it."""
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
