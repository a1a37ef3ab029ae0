"""``bireme drain``: a preview of what ``kubectl drain`` would move; it moves nothing itself."""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from bireme.console import options as common
from bireme.console.draining import Move, preview
from bireme.console.errors import ConsoleError
from bireme.console.reading import Json, Reader, ask
from bireme.core.settings import SchedulingSettings
from bireme.kube import names, wire
from bireme.kube.cluster_state import ClusterState
from bireme.registry import make_policy
from bireme.simulator.reports.terminal import aligned

_PODS: Final = "/api/v1/pods"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Teach ``parser`` what ``bireme drain`` understands."""
    parser.add_argument("node", nargs="+", metavar="NODE", help="nodes that would be drained")
    common.add_target(parser, namespaced=False)
    common.add_output(parser)


def run(options: argparse.Namespace, _arguments: Sequence[str]) -> int:
    """Show what would move; the exit status. Raises ConsoleError for a node there is not."""
    settings = SchedulingSettings()

    async def question(reader: Reader) -> tuple[ClusterState, list[Json]]:
        return await state_of(reader, settings)

    state, others = ask(common.target(options), question)
    for name in options.node:
        if state.node(name) is None:
            raise ConsoleError(f"argument NODE: there is no node {name!r}; see: kubectl get nodes")
    snapshot = state.snapshot(time.time())  # noqa: TID251  # a person asks now
    moves = preview(snapshot, options.node, make_policy(settings))
    beside = sum(pod["spec"].get("nodeName") in options.node for pod in others)
    data = {"nodes": options.node, "gangs": [_data(m) for m in moves], "otherPods": beside}
    common.write(options.output, data, _text(moves, beside))
    if options.output == "text" and moves:
        sys.stderr.write("This is a preview by the default settings; nothing has been moved.\n")
    return 0


async def state_of(reader: Reader, settings: SchedulingSettings) -> tuple[ClusterState, list[Json]]:
    """The cluster as the operator would see it, and the pods that are none of its gangs'."""
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
        (names.path("trainingjobs"), wire.Custom, state.put_job),
        (names.path("podgroups"), wire.Custom, state.put_group),
    ]
    for path, kind, put in feeds:
        for manifest in await reader.objects(path):
            put(*_decoded(manifest, kind))
    others = []
    for manifest in await reader.objects(_PODS):
        if names.POD_GROUP_LABEL in (manifest["metadata"].get("labels") or {}):
            state.put_member(*_decoded(manifest, wire.Pod))
        else:
            state.put_other_pod(*_decoded(manifest, wire.Pod))
            others.append(manifest)
    return state, others


def _decoded(manifest: Json, kind: type[Any]) -> tuple[tuple[str, str], Any]:
    """Key and object as a reflector hands them over."""
    about = manifest["metadata"]
    made = msgspec.json.decode(msgspec.json.encode(manifest), type=kind)
    return (about.get("namespace", ""), about["name"]), made


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
        lines.append(f"{beside} other pods there are not Bireme's; kubectl drain moves them.")
    return "\n".join(lines) + "\n"
