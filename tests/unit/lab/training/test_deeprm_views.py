"""Views of DeepRM's env: of the scorer and of the paper's networks."""

import numpy as np
import pytest

from bireme_lab.encoders.a2c import CONTEXT_FEATURES, HORIZON_STEPS, JOB_FEATURES, columns
from bireme_lab.training.deeprm.baselines import shortest_first
from bireme_lab.training.deeprm.environment import (
    DeepRmEnv,
    DeepRmEnvConfig,
    DeepRmState,
    as_image,
    as_set,
)

ENVS = 40


def some_states(setting: DeepRmEnvConfig, steps: int = 30) -> list[DeepRmState]:
    """States on the way, under a rule."""
    env = DeepRmEnv(ENVS, setting)
    env.reset(range(ENVS))
    states = []
    for _ in range(steps):
        states.append(env.state)
        env.step(shortest_first(env.state))
    return states


STATES = some_states(DeepRmEnvConfig(rates=(0.9,)))


def test_the_image_of_deeprm_has_124_columns_for_5_jobs_and_224_for_10() -> None:
    assert columns(5) == 124
    assert columns(10) == 224
    for queue_slots in (5, 10):
        state = some_states(DeepRmEnvConfig(queue_slots=queue_slots), 1)[0]
        assert as_image(state)["image"].shape == (ENVS, 1, 20, columns(queue_slots))


def test_the_first_row_of_the_image_tells_what_is_held_now() -> None:
    for state in STATES:
        image = as_image(state)["image"][:, 0]
        for resource, left in enumerate((0, 110)):
            held = image[:, 0, left : left + 10].sum(axis=1)
            assert (held == 10 - state.free[:, resource]).all()


def test_a_job_of_the_queue_is_a_block_of_its_duration_and_demand() -> None:
    for state in STATES:
        image = as_image(state)["image"][:, 0]
        for slot in range(10):
            for resource, left in enumerate((10, 120)):
                block = image[:, :, left + 10 * slot : left + 10 * slot + 10]
                area = state.of_queue(state.jobs.durations * state.jobs.demands[:, :, resource])
                assert (block.sum(axis=(1, 2)) == area[:, slot]).all()


def test_the_image_counts_the_jobs_behind_the_queue() -> None:
    behind = [np.maximum(state.waiting.sum(axis=1) - 10, 0) for state in STATES]
    counted = [as_image(state)["image"][:, 0, :, 220:223].sum(axis=(1, 2)) for state in STATES]
    assert (np.array(behind) == np.array(counted)).all()
    assert np.array(behind).any(), "no state had a backlog"


def test_the_image_tells_how_long_no_job_has_come() -> None:
    state = STATES[-1]
    since = as_image(state)["image"][:, 0, :, 223]
    assert (since == since[:, :1]).all()
    comes = np.where(state.jobs.exists, np.arange(50), -20)
    last = np.where(comes <= state.clock[:, None], comes, -20).max(axis=1)
    assert since[:, 0] == pytest.approx(np.minimum((state.clock - last) / 20, 1))


def test_both_views_allow_what_the_world_allows() -> None:
    for state in STATES:
        assert (as_set(state)["mask"] == state.allowed).all()
        assert (as_image(state)["mask"] == state.allowed).all()


def test_the_set_has_a_row_for_every_job_of_the_queue() -> None:
    state = STATES[5]
    seen = as_set(state)
    assert seen["jobs"].shape == (ENVS, 10, JOB_FEATURES)
    assert seen["context"].shape == (ENVS, CONTEXT_FEATURES)
    assert (seen["present"] == (state.queue >= 0)).all()
    demands = state.of_queue(state.jobs.demands)
    assert seen["jobs"][:, :, :2] == pytest.approx(demands / 10)
    assert (seen["jobs"][:, :, 8][seen["present"]] == state.fits[seen["present"]]).all()


def test_the_context_tells_what_will_be_free() -> None:
    """Nobody starts: what is free later is what the env has free then."""
    for state in STATES:
        later = as_set(state)["context"][:, 2:-1].reshape(ENVS, len(HORIZON_STEPS), 2)
        for place, steps in enumerate(HORIZON_STEPS):
            runs = state.ends > state.clock[:, None] + steps
            held = (runs[:, :, None] * state.jobs.demands).sum(axis=1)
            assert later[:, place] == pytest.approx((10 - held) / 10)
