"""The rules of TapFinger's env, and the reference they must meet."""

import numpy as np
import pytest

from bireme_lab.training.tapfinger.baselines import Greedy, Rule, at_random, rules, shortest_first
from bireme_lab.training.tapfinger.environment import make_config
from bireme_lab.training.tapfinger.evaluation import follow
from bireme_lab.training.vec_env import Array

SEEDS = range(32)
LAW = make_config("multi-3").law
SENSITIVE, INSENSITIVE = 1, 0


def a_moment(
    jobs: dict[int, tuple[int, list[int]]],
    free: list[int],
    *,
    cpus: int = 16,
    may_wait: bool = True,
) -> dict[str, Array]:
    """One env: of each job the kind and the pools that it reaches; free GPUs of each pool."""
    pools = len(free)
    job = np.full((1, pools, 10), -1)
    kind = job.copy()
    for number, (what, reaches) in jobs.items():
        for pool in reaches:
            place = int((job[0, pool] >= 0).sum())
            job[0, pool, place], kind[0, pool, place] = number, what
    there, room = job >= 0, np.array([[[cpus, each] for each in free]])
    least = np.where(there[..., None], np.array(LAW.least), 0)
    return {
        "job": job,
        "kind": kind,
        "pending_mask": there,
        "fits": there & np.asarray((room >= LAW.least).all(axis=2))[..., None],
        "least": least,
        "free": room,
        "most": np.full((1, pools, 2), 16),
        "may_wait": np.array([may_wait]),
    }


def given(chosen: dict[str, Array], seen: dict[str, Array]) -> dict[int, tuple[int, int]]:
    """The pool and the GPUs of every job that starts."""
    pools = np.flatnonzero(chosen["won"][0])
    slots = chosen["slot"][0, pools]
    jobs = seen["job"][0, pools, slots]
    gpus = chosen["amount"][0, pools, 1]
    return {int(j): (int(p), int(g)) for j, p, g in zip(jobs, pools, gpus, strict=True)}


def test_the_tuned_rule_gives_ten_gpus_or_what_there_is() -> None:
    seen = a_moment({0: (SENSITIVE, [0, 1]), 1: (SENSITIVE, [0, 1])}, [16, 6])
    assert given(Greedy(LAW, is_frugal=False)(seen), seen) == {0: (0, 10), 1: (1, 6)}


def test_the_frugal_rule_leaves_gpus_that_save_no_step() -> None:
    seen = a_moment({0: (SENSITIVE, [0, 1]), 1: (SENSITIVE, [0, 1])}, [16, 6])
    assert given(Greedy(LAW)(seen), seen) == {0: (0, 10), 1: (1, 5)}


def test_a_sensitive_job_waits_for_four_gpus_and_others_pass_it() -> None:
    seen = a_moment({0: (SENSITIVE, [0]), 1: (INSENSITIVE, [0])}, [3])
    assert given(Greedy(LAW)(seen), seen) == {1: (0, 1)}


def test_an_insensitive_job_goes_where_least_is_free() -> None:
    seen = a_moment({0: (INSENSITIVE, [0, 1, 2])}, [16, 3, 5])
    assert given(Greedy(LAW)(seen), seen) == {0: (1, 1)}


def test_who_has_to_start_does_so_with_less() -> None:
    seen = a_moment({0: (SENSITIVE, [0])}, [2], may_wait=False)
    assert given(Greedy(LAW)(seen), seen) == {0: (0, 2)}


def test_shortest_first_starts_the_short_one_though_it_came_later() -> None:
    law = make_config("pointer").law
    seen = a_moment({0: (1, [0]), 1: (0, [0])}, [16])
    seen["least"] = np.where(seen["pending_mask"][..., None], np.array(law.least), 0)
    assert given(shortest_first(law)(seen), seen) == {1: (0, 3)}


def test_of_two_pools_that_take_a_job_at_random_the_first_gets_it() -> None:
    seen = a_moment({0: (SENSITIVE, [0, 1])}, [16, 16])
    assert given(at_random(0, takes_least=True)(seen), seen) == {0: (0, 1)}


def test_a_choice_at_random_may_be_nothing_and_has_any_possible_amount() -> None:
    rule, seen = at_random(0, takes_least=False), a_moment({0: (SENSITIVE, [0])}, [2], cpus=3)
    drawn = [rule(seen)["amount"][0, 0].tolist() for _ in range(400)]
    counts = {tuple(each): drawn.count(each) for each in drawn}
    assert set(counts) == {(0, 0), (2, 1), (2, 2), (3, 1), (3, 2)}
    assert min(counts.values()) > 40


def test_shortest_first_is_a_rival_only_where_sizes_gain_nothing() -> None:
    assert "sjf" in rules(make_config("pointer").law, 0)
    assert "sjf" not in rules(LAW, 0)


def mean_steps(rule: Rule, name: str) -> float:
    end = follow(rule, make_config(name), SEEDS)
    return float((end.ended - end.jobs.arrival).mean())


@pytest.mark.parametrize(
    ("name", "steps", "error"),
    [("multi-3", 3.785, 0.1), ("single-3", 3.63, 0.07), ("single-6", 3.33, 0.05)],
)
def test_the_tuned_rule_has_the_mean_that_is_known_of_it(
    name: str, steps: float, error: float
) -> None:
    """Means measured in another program."""
    rule = Greedy(make_config(name).law, is_frugal=False)
    assert mean_steps(rule, name) == pytest.approx(steps, abs=error)


def test_to_be_frugal_is_better() -> None:
    tuned = mean_steps(Greedy(LAW, is_frugal=False), "multi-3")
    assert mean_steps(Greedy(LAW), "multi-3") < tuned - 0.05
