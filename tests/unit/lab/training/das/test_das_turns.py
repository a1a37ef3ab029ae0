"""Both agents take turns in the same env, and what one did is what the other sees."""

import numpy as np
import pytest

from bireme.core.resources import IntArray
from bireme_lab.training.das.environment import ORDERING, PLACEMENT, DasEnv, DasTurnEnv
from bireme_lab.training.vec_env import Observation

JOBS = 25


def turns(count: int = 2, *, reports: bool | None = None) -> DasTurnEnv:
    return DasTurnEnv(count, ("small",), jobs=JOBS, slots=JOBS, reports=reports)


def gpus(seen: Observation) -> IntArray:
    """GPUs of the jobs in sight, shape (envs, slots)."""
    return np.rint(seen["jobs"][:, :, 0] * 16.0).astype(np.int64)


def placed_by_size(env: DasTurnEnv, seen: Observation) -> Observation:
    """The smallest job is chosen; what the placement agent is shown."""
    return env.step({ORDERING: -gpus(seen)}).observation


def played(env: DasTurnEnv, seeds: list[int]) -> list[Observation]:
    """Observations of the placement agent, job after job, of an episode on the first machines."""
    seen, shown = env.reset(seeds), []
    for _ in range(JOBS):
        shown.append(placed_by_size(env, seen))
        step = env.step({PLACEMENT: -np.arange(8.0)[None].repeat(env.count, 0)})
        seen = step.observation
    assert step.is_over.all()
    return shown


def test_turns_lead_where_both_actions_at_once_lead() -> None:
    at_once = DasEnv(2, jobs=JOBS, slots=JOBS)
    seen, env = at_once.reset([3, 4]), turns()
    for _ in range(JOBS):
        placement = -np.arange(8.0)[None].repeat(2, 0)
        seen = at_once.step({ORDERING: -gpus(seen), PLACEMENT: placement}).observation
    played(env, [3, 4])
    for metric, values in at_once.summary().items():
        np.testing.assert_array_equal(env.summary()[metric], values)


def test_choosing_takes_no_time_and_earns_nothing_until_the_job_is_placed() -> None:
    env = turns()
    seen = env.reset([3, 4])
    chosen = env.step({ORDERING: -gpus(seen)})
    assert chosen.rewards.tolist() == [0.0, 0.0]
    assert chosen.times.tolist() == env.clusters.now.tolist()
    assert not env.clusters.running.any()
    placed = env.step({PLACEMENT: np.zeros((2, 8))})
    assert (placed.rewards < 0).all()
    assert env.clusters.started[0, 0] == chosen.times[0]


def test_placement_agent_is_shown_the_job_that_was_chosen() -> None:
    env = turns(1)
    seen = env.reset([5])
    while seen["fits"].sum() < 2:
        seen = env.step({ORDERING: -gpus(seen)}).observation
        seen = env.step({PLACEMENT: np.zeros((1, 8))}).observation
    need = gpus(seen)[0]
    last = int(np.flatnonzero(seen["fits"][0])[-1])
    scores = np.eye(JOBS)[last][None]
    placing = env.step({ORDERING: scores}).observation
    assert placing["is_placing"].all()
    assert placing["placed"][0, 0] == pytest.approx(np.log2(need[last]) / 4)


def test_every_other_pair_of_seeds_learns_nothing_of_finished_runs() -> None:
    last = played(turns(4), [0, 1, 2, 3])[-1]["places"][:, :, -1]
    assert [bool(row.any()) for row in last] == [True, True, False, False]
    unaware = played(turns(1, reports=False), [0])[-1]["places"][:, :, -1]
    assert not unaware.any()


def test_walks_are_a_factor_of_what_is_not_known_and_shrink_with_finished_runs() -> None:
    shown = played(turns(1, reports=True), [0])
    first, last = (shown[at]["walks"][0].astype(float) for at in (0, -1))
    np.testing.assert_array_equal(first, np.tril(first))
    doubt = [np.diag(factor @ factor.T) for factor in (first, last)]
    assert (doubt[0] >= 1.0).all()
    assert doubt[1].mean() < 0.95 * doubt[0].mean()


def test_the_slides_pay_at_a_start_for_the_job_and_charge_for_those_in_line() -> None:
    env = DasTurnEnv(2, ("small",), jobs=JOBS, slots=JOBS, pays="slides")
    seen = env.reset([3, 4])
    for _ in range(JOBS):
        waiting = env.clusters.waiting.copy()
        placed_by_size(env, seen)
        clusters = env.clusters
        now, running = clusters.now.copy(), clusters.running.copy()
        step = env.step({PLACEMENT: -np.arange(8.0)[None].repeat(2, 0)})
        seen = step.observation
        for one in range(2):
            (job,) = np.flatnonzero(
                (clusters.started[one] == now[one]) & ~running[one] & waiting[one]
            )
            run = clusters.run_seconds[one, job] / 3600
            waited = (now[one] - clusters.submitted[one]) / 3600
            others = waiting[one].copy()
            others[job] = False
            charge = 0.01 * (waited * clusters.gpus[one])[others].sum()
            # The speed at the start is lost by now: at most 10 is gained, and more than nothing.
            gained = step.rewards[one] * waiting[one].sum() + charge
            assert 0 < gained <= 10 + 1e-9
            assert run > 0
    assert step.is_over.all()
