"""Clusters of parameter servers: who gets a server, what a period is, who is interrupted."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme_lab.training.rlpto.environment import CONFIGS, RlptoClusters, RlptoEnvConfig
from testbed.examples import examples

TASKS = 12
TABLE = CONFIGS["table-2"]
EVERYWHERE = np.array([True])


def a_cluster(
    setting: RlptoEnvConfig = TABLE, seed: int = 0, most_iterations: float = 1e9
) -> RlptoClusters:
    return RlptoClusters([setting], [seed], most_iterations)


def run(cluster: RlptoClusters, seconds: float) -> None:
    """Let periods pass until the clock is past ``seconds``."""
    while cluster.clock[0] < seconds:
        cluster.advance(EVERYWHERE)
        cluster.start()


def test_at_first_each_server_has_a_task_with_one_worker() -> None:
    cluster = a_cluster()
    assert cluster.running.sum() == TABLE.servers
    assert cluster.nodes.max() == 1
    assert cluster.free[0] == TABLE.nodes - TABLE.servers


def test_a_period_is_the_longest_iteration_of_the_running_tasks() -> None:
    cluster = a_cluster()
    longest = cluster.iteration_seconds[cluster.running].max()
    seconds = cluster.advance(EVERYWHERE)
    assert seconds[0] == pytest.approx(longest)
    assert cluster.iterations[cluster.running].min() == pytest.approx(1)


def test_a_period_ends_where_a_task_has_done_its_last_iteration() -> None:
    cluster = a_cluster(most_iterations=0.5)
    shortest = cluster.iteration_seconds[cluster.running].min()
    seconds = cluster.advance(EVERYWHERE)
    assert seconds[0] == pytest.approx(shortest / 2)
    assert cluster.done.sum() == (cluster.finished == cluster.clock[0]).sum() > 0


def test_the_gain_is_what_an_iteration_of_the_last_period_added() -> None:
    cluster = a_cluster()
    running = cluster.running
    cluster.advance(EVERYWHERE)
    before = cluster.accuracy
    cluster.advance(EVERYWHERE)
    done = (cluster.accuracy - before) / cluster.gain
    each = cluster.iterations / 2
    assert done[running] == pytest.approx(each[running])
    assert (cluster.gain[~running] == 1).all()


def test_more_nodes_make_every_step_slower_as_they_share_a_machine() -> None:
    slow = a_cluster(replace(TABLE, slowdown=1.5))
    assert slow.iteration_seconds == pytest.approx(1.5 * a_cluster().iteration_seconds)


def test_a_task_that_finds_no_free_worker_gets_one_of_the_task_that_has_most() -> None:
    cluster = a_cluster()
    first, second, third = np.flatnonzero(cluster.running[0])
    cluster.nodes[0, [first, second, third]] = [6, 3, 1]
    cluster.end((np.arange(TASKS) == third)[None])
    cluster.nodes[0, second] = 4
    cluster.start()
    assert cluster.nodes[0, [first, second]].tolist() == [5, 4]
    assert cluster.free[0] == 0


def mixed(priorities: tuple[int, ...], spread_seconds: float = 0.0) -> RlptoEnvConfig:
    return replace(TABLE, priorities=priorities, spread_seconds=spread_seconds)


def test_urgent_tasks_are_first_then_the_higher_priority_then_who_came_first() -> None:
    cluster = a_cluster(mixed((1, 1, 4, 1, 5, 4, *[1] * 6)))
    assert np.flatnonzero(cluster.running[0]).tolist() == [2, 4, 5]


def test_an_urgent_task_interrupts_the_normal_one_that_started_last() -> None:
    cluster = a_cluster(mixed((*[1] * 11, 5), spread_seconds=1000.0))
    last_arrival = float(cluster.tasks.arrived.max())
    run(cluster, last_arrival)
    started = [n for n in range(11) if not np.isnan(cluster.started[0, n])]
    assert np.flatnonzero(cluster.running[0]).tolist() == [*started[:-1], 11]
    assert np.flatnonzero(cluster.interrupted[0]).tolist() == started[-1:]


def test_an_interrupted_task_is_the_next_to_go_on_with_what_it_has_learned() -> None:
    cluster = a_cluster(mixed((*[1] * 11, 5), spread_seconds=1000.0))
    run(cluster, float(cluster.tasks.arrived.max()))
    (stopped,) = np.flatnonzero(cluster.interrupted[0])
    learned = cluster.iterations[0, stopped]
    cluster.end((np.arange(TASKS) == 11)[None])
    cluster.start()
    assert cluster.running[0, stopped]
    assert cluster.iterations[0, stopped] == learned > 0


def test_owners_of_waiting_tasks_can_make_them_urgent_and_normal_again() -> None:
    cluster = a_cluster(replace(mixed((4,) * 6 + (5,) * 6), request_seconds=10.0))
    asked = cluster.tasks.requests[0]
    run(cluster, 200.0)
    waiting = cluster.waiting[0]
    raised, lowered = waiting[:6] & (asked[:6] > 0), waiting[6:] & (asked[6:] < 0)
    assert raised.any()
    assert lowered.any()
    assert cluster.is_urgent[0, :6][raised].all()
    assert not cluster.is_urgent[0, 6:][lowered].any()


@examples(25)
@given(st.integers(0, 2**31), st.sampled_from(sorted(CONFIGS)))
def test_whatever_happens_nobody_has_more_than_there_is_and_all_end(seed: int, name: str) -> None:
    setting, chance = CONFIGS[name], np.random.default_rng(seed)
    cluster = a_cluster(setting, seed, most_iterations=8.0)
    while not cluster.is_over.all():
        running = np.flatnonzero(cluster.running[0])
        for task in chance.choice(running, int(cluster.free[0])) if len(running) else ():
            cluster.nodes[0, task] += 1
        assert cluster.nodes.sum() <= setting.nodes
        assert cluster.running.sum() <= setting.servers
        cluster.advance(EVERYWHERE)
        cluster.start()
    assert (cluster.finished >= cluster.tasks.arrived).all()
    assert cluster.iterations == pytest.approx(np.full((1, TASKS), 8.0))
