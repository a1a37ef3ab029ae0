"""Random scripts of what users do: a real and an embedded cluster answer alike and end alike.

``python -m testbed.parity`` plays more of them.
"""

import pytest

from testbed.parity.clusters import both_clusters
from testbed.parity.scripts.drawing import draw

pytestmark = pytest.mark.cluster
SEEDS = (3, 5)


async def test_both_clusters_answer_alike_and_come_to_the_same_states() -> None:
    async with both_clusters() as lockstep:
        differences = [str(each) for seed in SEEDS for each in await lockstep.play(draw(seed))]
        await lockstep.await_no_namespaces()
    assert differences == []
