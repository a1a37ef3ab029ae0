"""The agents of TapFinger choose alike while they are trained and when they are served."""

from collections import Counter

import numpy as np
import pytest
import torch

from bireme.core.resources import BoolArray, IntArray
from bireme_lab.encoders.tapfinger import LOST, VOID, decide, question
from bireme_lab.encoders.tapfinger_types import TYPES
from bireme_lab.training.networks import predict, tensors
from bireme_lab.training.tapfinger.environment import TapFingerAgentEnv, TapFingerEnv, make_config
from bireme_lab.training.tapfinger.evaluation import PAPER, agent_env
from bireme_lab.training.tapfinger.networks import Design, ServedPools, TapAgents
from bireme_lab.training.vec_env import Observation, take


@pytest.mark.parametrize("name", ["multi-3", "single-3", "hetero-6", "pointer"])
def test_one_moment_is_decided_as_a_row_of_a_batch_is(name: str) -> None:
    torch.manual_seed(2)
    agents = TapAgents()
    served = ServedPools(agents.network)
    env = TapFingerAgentEnv(TapFingerEnv(5, make_config(name, jobs=30), retries=True))
    seen = env.reset(range(5))
    for _ in range(25):
        chosen = predict(agents, seen)
        assert isinstance(chosen, dict)
        for row in range(5):
            one = take(seen, np.asarray(row))
            arrays, count = question(one)
            with torch.no_grad():
                logits = served(*(torch.from_numpy(part) for part in arrays.values())).numpy()
            assert len(logits) == count
            slot, size = decide(one, arrays["sizes"], logits.astype(np.float64))
            assert size.tolist() == chosen["size"][row].tolist()
            is_busy = size >= 0
            assert slot[is_busy].tolist() == chosen["slot"][row][is_busy].tolist()
        seen = env.step(chosen).observation


def test_what_is_drawn_when_served_is_as_likely_as_in_training() -> None:
    """Outcomes of all pools together: tasks, sizes, and who lost."""
    torch.manual_seed(2)
    agents = TapAgents(Design(types=TYPES))
    with torch.no_grad():  # a network that nobody trained finds all choices about as good
        for last in (agents.network.pointer.score, agents.network.size_head.inner[-1]):
            for weight in last.parameters():
                weight.mul_(60)
    served = ServedPools(agents.network)
    env = agent_env(1, make_config("single-3-noisy", jobs=30), PAPER)
    starts = map(env.reset, ([seed] for seed in range(1000)))
    seen = next(each for each in starts if _startable(each).sum(axis=-1).min() > 2)
    one = take(seen, np.asarray(0))
    arrays, _ = question(one)
    with torch.no_grad():
        logits = served(*(torch.from_numpy(part) for part in arrays.values())).numpy()
        found = agents.distribution(tensors(seen, agents.device))
    logits = logits.astype(np.float64)
    draws, generator = np.random.default_rng(4), torch.Generator().manual_seed(5)
    times = 4000
    answers = [decide(one, arrays["sizes"], logits, draws=draws) for _ in range(times)]
    samples = [found.sample(generator) for _ in range(times)]
    trained = [(each["slot"][0].numpy(), each["size"][0].numpy()) for each in samples]
    for pool in range(3):
        both = [Counter(_outcome(s, z, pool) for s, z in some) for some in (answers, trained)]
        assert len(both[0]) > 4
        for outcome in set().union(*both):
            shares = [some[outcome] / times for some in both]
            # Five standard errors of the difference of two shares.
            assert abs(shares[0] - shares[1]) < 5 * (sum(shares) / times) ** 0.5, (pool, outcome)


def _startable(seen: Observation) -> BoolArray:
    """Return whether there is a task in each slot of each pool, and room for it."""
    kind = seen["kind"]
    room = np.take_along_axis(seen["sizes"][..., 0, 0], np.maximum(kind, 0), axis=-1)
    return np.asarray((room > 0) & (kind >= 0))


def _outcome(slot: IntArray, size: IntArray, pool: int) -> tuple[int, str]:
    """Return the slot of ``pool``, none where it lost, and what was given to it, in short."""
    given = int(size[pool])
    if given == LOST:
        return -1, "lost"
    return int(slot[pool]), "nothing" if given == VOID else f"size {given % 4}"
