"""Command line: build the binaries, start and stop named clusters (build, up, down, list)."""

import argparse
import functools
import sys
import time
from pathlib import Path

from testbed.controlplane.binaries import (
    CONTROL_PLANE,
    COSCHEDULING,
    HELM,
    JUDGE,
    KARPENTER,
    KIND,
    KUBEFLOW,
    KUEUE,
    NODE,
    Bundle,
    build,
)
from testbed.controlplane.cluster import Cluster, known_clusters, stop_orphans
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.nodes import fake_nodes, nodes_manifest
from testbed.controlplane.realnode.obstacle import obstacle


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        match options.command:
            case "build":
                _build_asked(options)
            case "up":
                _up(options.name, options.nodes, real_node=options.node)
            case "down":
                Cluster.find(options.name).stop()
                print(f"cluster {options.name} is gone")
            case "list":
                _list()
            case "nodes":
                print(nodes_manifest(), end="")
    except (ControlPlaneError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="controlplane", description="A real Kubernetes control plane without Docker."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="collect and cache what a cluster needs")
    building.add_argument(
        "--helm", action="store_true", help="Helm as well, for tests of the chart"
    )
    building.add_argument(
        "--judge", action="store_true", help="kube-scheduler's filters as well, for their tests"
    )
    building.add_argument(
        "--karpenter", action="store_true", help="Karpenter as well, for the tests of node pools"
    )
    building.add_argument(
        "--kubeflow", action="store_true", help="Kubeflow as well, for the tests of its jobs"
    )
    building.add_argument(
        "--peers", action="store_true", help="other gang schedulers as well, for their benchmark"
    )
    building.add_argument("--node", action="store_true", help="the programs of a real node as well")
    building.add_argument(
        "--kind", action="store_true", help="kind and what its node image holds as well"
    )
    building.add_argument(
        "--where-possible", action="store_true", help="no error where there can be no real node"
    )
    up = commands.add_parser("up", help="start a cluster that stays until `down`")
    up.add_argument("name")
    up.add_argument("--nodes", type=int, default=16, help="fake nodes of 8 GPUs (default 16)")
    up.add_argument("--node", action="store_true", help="a real node as well; as root on Linux")
    down = commands.add_parser("down", help="stop a cluster and remove its folder")
    down.add_argument("name")
    commands.add_parser("list", help="show all clusters; clears away those whose owner died")
    commands.add_parser("nodes", help="print the fake nodes of the demo as YAML, for kind")
    return parser


def _build_asked(options: argparse.Namespace) -> None:
    print(_build(CONTROL_PLANE))
    if options.helm:
        print(_build(HELM))
    if options.judge:
        print(_build(JUDGE))
    if options.karpenter:
        print(_build(KARPENTER))
    if options.kubeflow:
        print(_build(KUBEFLOW))
    if options.peers:
        print(_build(COSCHEDULING))
        print(_build(KUEUE))
    if options.kind:
        print(_build(KIND))
    if options.node:
        reason = obstacle() if options.where_possible else None
        print(f"no real node: {reason}" if reason else _build(NODE))


def _build(bundle: Bundle) -> Path:
    return build(bundle, report=functools.partial(print, flush=True))


def _up(name: str, nodes: int, *, real_node: bool) -> None:
    made = fake_nodes(nodes, racks=min(4, nodes)) if nodes else []
    for bundle in (CONTROL_PLANE, NODE) if real_node else (CONTROL_PLANE,):
        _build(bundle)
    started_seconds = time.monotonic()
    cluster = Cluster.start(name, detached=True, real_node=real_node)
    cluster.add_nodes(made)
    took_seconds = time.monotonic() - started_seconds
    print(
        f"cluster {name} is up after {took_seconds:.1f} s with {nodes} fake nodes"
        f"{' and a real one' if real_node else ''}"
    )
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    print(f"export PATH={cluster.binary('kubectl').parent}:$PATH")


def _list() -> None:
    for name in stop_orphans():
        print(f"{name}: its program died without stopping it; stopped now")
    for name in known_clusters():
        cluster = Cluster(name)
        print(f"{name}: {cluster.api.server if cluster.kubeconfig.exists() else 'starting'}")


if __name__ == "__main__":
    sys.exit(main())
