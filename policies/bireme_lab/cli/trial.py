"""``bireme try``: a cluster in this process with Bireme on it, until Ctrl-C."""

import argparse
import asyncio
import contextlib
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from bireme.cli.arguments import UsageError, whole
from bireme.kube import names
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.fake_nodes import fake_nodes
from bireme_lab.embedded.installation import EmbeddedInstallation, end_signal

_KINDS: Final = ("Node", "Queue", "PriorityClass")
_RACKS: Final = 4
_DEFAULT_QUEUE: Final[Object] = {
    "apiVersion": names.API_VERSION,
    "kind": "Queue",
    "metadata": {"name": names.DEFAULT_QUEUE},
    "spec": {},
}
# Fields that a server wrote into objects that another one printed.
_OF_SERVER: Final = (
    "creationTimestamp",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=whole, default=4, help="fake nodes; default: 4")
    parser.add_argument(
        "--gpus", type=partial(whole, minimum=0), default=8, help="GPUs of a node; default: 8"
    )
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        metavar="FILE",
        help="the cluster that kubectl get nodes,queues,priorityclasses -o yaml printed, in place "
        "of --nodes and --gpus",
    )
    parser.add_argument(
        "--no-board", action="store_true", help="leave the board out; it needs the extra ui"
    )


def run(options: argparse.Namespace) -> int:
    if options.file is None:
        racks = min(_RACKS, options.nodes)
        nodes, remainder = fake_nodes(options.nodes, options.gpus, racks), [dict(_DEFAULT_QUEUE)]
    else:
        nodes, remainder = read_cluster(options.file)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(nodes, remainder, has_board=not options.no_board))
    return 0


async def _run(nodes: list[Object], remainder: list[Object], *, has_board: bool) -> None:
    end = end_signal()
    async with EmbeddedInstallation(nodes, remainder, has_board=has_board) as installed:
        _say(f"{len(nodes)} fake nodes are ready, and Bireme runs. In another shell:")
        _say(f"  export KUBECONFIG={installed.kubeconfig}")
        _say("  kubectl get nodes; kubectl apply -f JOB.yaml; kubectl get btj; bireme why JOB")
        if has_board and (address := await installed.board_address()):
            _say(f"The board, in a browser; the address works once: {address}")
        _say("API server, scheduler, kubelets and controllers are models. Ctrl-C ends all of it.")
        await end.wait()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def read_cluster(path: Path) -> tuple[list[Object], list[Object]]:
    """Return the nodes and the other objects of a file that kubectl printed.

    Raises:
        UsageError: the file cannot be read, or has an object of another kind.
    """
    try:
        documents = list(yaml.safe_load_all(path.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"argument --file: {path} cannot be read: {error}") from error
    nodes, remainder = [], []
    for obj in (each for document in documents for each in _items(document)):
        kind = obj.get("kind") if isinstance(obj, dict) else None
        if kind not in _KINDS:
            raise UsageError(
                f"argument --file: {path} has an object of kind {kind!r}; print it with "
                "kubectl get nodes,queues,priorityclasses -o yaml"
            )
        meta = obj.get("metadata")
        if not isinstance(meta, dict) or not meta.get("name"):
            raise UsageError(f"argument --file: {path} has a {kind} without metadata.name")
        bare = _bare(obj)
        if kind == "Node":
            bare["status"] = {
                name: (obj.get("status") or {}).get(name) or {}
                for name in ("capacity", "allocatable")
            }
            nodes.append(bare)
        elif not str(bare["metadata"]["name"]).startswith("system-"):
            remainder.append(bare)
    if not nodes:
        raise UsageError(f"argument --file: {path} has no Node; print it with kubectl get nodes")
    return nodes, remainder


def _items(document: Any) -> list[Any]:
    if isinstance(document, dict) and document.get("kind") == "List":
        return list(document.get("items") or ())
    return [] if document is None else [document]


def _bare(obj: Object) -> Object:
    """Return an object without what its API server wrote."""
    meta = {k: v for k, v in obj["metadata"].items() if k not in _OF_SERVER}
    return {**{k: v for k, v in obj.items() if k not in ("metadata", "status")}, "metadata": meta}
