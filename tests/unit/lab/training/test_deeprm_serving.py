"""Networks are served with the inputs they were trained on: one state, as env and as cluster.

And of the checkpoint that is shipped: what it is good at, and what it waits for.
"""

import numpy as np
import pytest

from bireme.core.gangs import Gang, Task
from bireme.core.resources import CPU, MEMORY, PODS, request_of
from bireme.core.snapshot import ClusterSnapshot
from bireme.rl import lookup
from bireme.testing import GIB, a_gang, a_node, a_running, a_snapshot, with_running
from bireme_lab.encoders.a2c import A2cImages, A2cJobs
from bireme_lab.training.deeprm.environment import (
    DeepRmEnv,
    DeepRmEnvConfig,
    DeepRmJobs,
    DeepRmState,
    as_image,
    as_set,
)
from bireme_lab.training.deeprm.evaluation import served_choice
from bireme_lab.training.deeprm.recipe import ScorerRecipe

RUNNING = (0, 6, 3, 1)
"""Step of arrival and start, duration, slots of either resource."""
WAITING = ((1, 2, 7, 1), (2, 3, 6, 2), (3, 1, 2, 7))
NOW = 4


def as_world() -> DeepRmState:
    """One job runs and three wait; the middle duration is 2, so that a step is a second."""
    setting = DeepRmEnvConfig()
    exists = np.zeros((1, setting.arrival_steps), dtype=np.bool_)
    durations = np.ones((1, setting.arrival_steps), dtype=np.int64)
    demands = np.ones((1, setting.arrival_steps, 2), dtype=np.int64)
    for at, duration, *slots in (RUNNING, *WAITING):
        exists[0, at], durations[0, at], demands[0, at] = True, duration, slots
    started = np.full((1, setting.arrival_steps), -1)
    started[0, 0] = RUNNING[0]
    waiting = exists & (started < 0)
    queue = np.array([[1, 2, 3, *[-1] * 7]])
    free = 10 - demands[:, 0]
    fits = (queue >= 0) & (demands[0, queue] <= free).all(axis=2)
    jobs = DeepRmJobs(exists, durations, demands)
    return DeepRmState(setting, jobs, np.array([NOW]), started, waiting, queue, free, fits)


def a_job(at: int, duration: int, cores: int, gibibytes: int) -> Gang:
    asks = request_of({CPU: 1000 * cores, MEMORY: GIB * gibibytes, PODS: 1})
    task = Task("main", 1, asks)
    return a_gang(f"j{at}", task, arrived=float(at), estimated_seconds=float(duration))


def as_cluster() -> tuple[list[Gang], ClusterSnapshot]:
    """The same on a node of 10 cores and 10 GiB."""
    gangs = [a_job(*job) for job in WAITING]
    node = a_node("machine", gpus=0, cpu_millis=10_000, memory_bytes=10 * GIB)
    snapshot = a_snapshot([node], *gangs, now=float(NOW))
    held = a_running(a_job(*RUNNING), snapshot.nodes, {"main": {"machine": 1}})
    return gangs, with_running(snapshot, held)


def test_the_scorer_sees_the_same_jobs_in_a_cluster() -> None:
    seen, served = as_set(as_world()), A2cJobs().encode(*as_cluster())
    assert served["jobs"] == pytest.approx(seen["jobs"][0, :3])
    assert served["context"] == pytest.approx(seen["context"][0])


def test_the_papers_networks_see_the_same_image_of_a_cluster() -> None:
    state = as_world()
    seen, served = as_image(state), A2cImages().encode(*as_cluster())
    assert served["image"].shape == (3, 1, 20, 224)
    assert (served["slot"].argmax(axis=1) == [0, 1, 2]).all()
    assert served["image"][2] == pytest.approx(seen["image"][0])


def test_gangs_are_shown_by_tens_in_order_of_arrival() -> None:
    jobs = [(at, 2, 1 + at % 3, 1) for at in range(1, 13)]
    gangs = [a_job(*job) for job in reversed(jobs)]
    node = a_node("machine", gpus=0, cpu_millis=10_000, memory_bytes=10 * GIB)
    served = A2cImages().encode(gangs, a_snapshot([node], *gangs, now=20.0))
    assert served["slot"].argmax(axis=1)[::-1].tolist() == [*range(10), 0, 1]
    for number in range(12):
        image, (_, duration, cores, _) = served["image"][11 - number, 0], jobs[number]
        left = 10 + 10 * (number % 10)
        assert image[:, left : left + 10].sum() == duration * cores
    behind = served["image"][::-1, 0, :, 220:223].sum(axis=(1, 2))
    assert behind.tolist() == [2] * 10 + [0] * 2


def test_the_shipped_scorer_beats_the_rules() -> None:
    recipe, shipped = ScorerRecipe(), lookup.load_named("a2c")
    found = [recipe.evaluate(shipped, "rate-0.9", seed, {}) for seed in range(200, 210)]
    means = {n: np.mean([one[n]["slowdown"] for one in found]) for n in ("a2c", "sjf", "tetris")}
    assert means["a2c"] < 0.8 * min(means["sjf"], means["tetris"])


def test_the_shipped_scorer_waits_only_where_nothing_but_long_jobs_fit() -> None:
    orderer = lookup.load_named("a2c").orderer
    assert orderer is not None
    recipe, env, voids = ScorerRecipe(), DeepRmEnv(1, DeepRmEnvConfig(rates=(0.9,))), 0
    for seed in range(200, 203):
        env.reset([seed])
        while not env.state.is_over.all():
            state = env.state
            chosen = served_choice(orderer.session, recipe.inputs(state), state)
            if chosen[0] == state.config.queue_slots:
                voids += 1
                fitting = state.of_queue(state.jobs.durations)[state.fits]
                assert (fitting >= 10).all()
            env.step(chosen)
    assert voids > 5
