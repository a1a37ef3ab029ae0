"""``python -m testbed.parity --seeds 0:200``: play scripts on a real and on an embedded cluster,
and print every difference."""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Final

from testbed.parity.clusters import both_clusters, embedded_cluster, real_cluster
from testbed.parity.lockstep import MAX_REST_SECONDS
from testbed.parity.scripts.drawing import draw

_PROGRESS: Final = 20
"""A line after every so many scripts."""


def main(arguments: list[str] | None = None) -> int:
    """Return 1 if the clusters differ in anything."""
    parser = argparse.ArgumentParser(prog="parity", description=__doc__)
    parser.add_argument("--seeds", default="0:20", help="FROM:TO (TO left out), or one seed")
    parser.add_argument("--only", choices=sorted(_ONE), help="play and tell on one, to debug")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    return asyncio.run(_tell(options.only, seeds) if options.only else _play(seeds))


_ONE: Final = {"real": real_cluster, "embedded": embedded_cluster}


async def _tell(name: str, seeds: Sequence[int]) -> int:
    """Play on one cluster, and print its answers and states."""
    async with _ONE[name]() as cluster:
        for script in map(draw, seeds):
            async with cluster.script(script):
                for number, step in enumerate(script.steps):
                    answer = await cluster.play(step)
                    deadline = asyncio.get_running_loop().time() + MAX_REST_SECONDS
                    await cluster.rest(script.namespace, deadline)
                    print(f"seed {script.seed}, step {number}, {step}\n    {answer}")
                    print(f"    {cluster.state(script.namespace)}", flush=True)
    return 0


async def _play(seeds: Sequence[int]) -> int:
    began, different = time.monotonic(), 0
    async with both_clusters() as lockstep:
        for count, seed in enumerate(seeds, 1):
            steps = await lockstep.play(draw(seed))
            different += bool(steps)
            for each in steps:
                print(each, flush=True)
            if count % _PROGRESS == 0:
                print(f"{count} of {len(seeds)} scripts, {different} differ", flush=True)
        await lockstep.await_no_namespaces()
    lasted = f"{time.monotonic() - began:.0f} s"
    print(f"{len(seeds)} scripts, {different} of them with differences, {lasted}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
