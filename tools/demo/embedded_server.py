"""The process of the demo's embedded cluster; ``python -m tools.demo.embedded_server`` runs it."""

import argparse
import asyncio
import json
from pathlib import Path

import yaml

from bireme_lab.embedded.fake_nodes import fake_nodes
from bireme_lab.embedded.installation import EmbeddedInstallation, end_signal
from testbed.internals import module_command
from tools.demo.cluster import INTERNALS, QUEUES, READY
from tools.demo.recording import operator_settings
from tools.demo.workload import NAMESPACE


async def serve(folder: Path, records: Path, nodes: int, racks: int, *, has_board: bool) -> None:
    """Run the cluster with Bireme on it until a signal ends this program."""
    end = end_signal()
    manifests = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *yaml.safe_load_all(QUEUES.read_text()),
    ]
    async with EmbeddedInstallation(
        fake_nodes(nodes, racks=racks),
        manifests,
        operator_settings(records),
        has_board=has_board,
        folder=folder,
        commands={"bireme_operator": module_command("bireme_operator", INTERNALS)},
    ) as installed:
        ready = {
            "server": installed.cluster.http.url,
            "kubeconfig": str(installed.kubeconfig.resolve()),
            "board": await installed.board_address() if has_board else "",
        }
        unfinished = folder / f"{READY}.new"
        unfinished.write_text(json.dumps(ready))
        unfinished.rename(folder / READY)  # a reader never sees half of it
        await end.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="of kubeconfig and logs")
    parser.add_argument("--records", type=Path, required=True, help="folder of the record")
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--racks", type=int, required=True)
    parser.add_argument("--board", action="store_true", help="with the board")
    options = parser.parse_args()
    asyncio.run(
        serve(
            options.folder,
            options.records,
            options.nodes,
            options.racks,
            has_board=options.board,
        )
    )


if __name__ == "__main__":
    main()
