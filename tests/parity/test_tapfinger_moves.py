"""The agents of TapFinger choose alike while they are trained and when they are served."""

import numpy as np
import pytest
import torch

from bireme.rl.encoders.tapfinger import decided, question
from bireme.training.networks import predict
from bireme.training.tapfinger.environment import TapFingerAgentEnv, TapFingerEnv, make_config
from bireme.training.tapfinger.networks import ServedPools, TapAgents
from bireme.training.vec_env import take


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
            slot, size = decided(one, arrays["sizes"], logits.astype(np.float64))
            assert size.tolist() == chosen["size"][row].tolist()
            is_busy = size >= 0
            assert slot[is_busy].tolist() == chosen["slot"][row][is_busy].tolist()
        seen = env.step(chosen).observation
