"""The judgement on runs that cannot be compared by ratios: what it says, and that it refuses."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from bireme.contender import Contender
from bireme.core.settings import SchedulingSettings
from bireme.rl.lookup import SETTINGS_SOURCE
from bireme_lab.contest.tuning import play
from bireme_lab.contest.worlds import World
from bireme_lab.simulator.metrics import SimulationMetrics, Statistics
from bireme_lab.tuning.judgement import Judgement, judgement_on
from bireme_lab.tuning.past import Past
from bireme_lab.tuning.search import SearchResult, judge
from testbed.planted import planted

OWN, BEST = Contender("fifo"), Contender("srtf")
WORLDS = [planted(number, "test") for number in range(6)]
PAST = Past({"test": WORLDS}, OWN, SETTINGS_SOURCE, SchedulingSettings(), 0.0, 1e6, 7e5, 20, 1, 0)
FOUND = SearchResult(((BEST, 0.0), (OWN, 1.0)), BEST)
RUN = play(OWN, WORLDS[0])


def judged(run_of: Callable[[Contender, World], SimulationMetrics]) -> Judgement:
    def players(pairs: Sequence[tuple[Contender, World]]) -> list[SimulationMetrics]:
        return [run_of(*pair) for pair in pairs]

    return judgement_on(PAST, FOUND, judge(PAST, BEST, players), least_days=0.0)


def run(mean: float | None, p99: float | None) -> SimulationMetrics:
    return replace(RUN, jct_seconds=Statistics(mean=mean), wait_seconds=Statistics(p99=p99))


def test_wait_where_nobody_waited_before_is_refused() -> None:
    found = judged(lambda who, _: run(50.0, 70.0) if who == BEST else run(100.0, 0.0))
    assert found.reasons == ("its p99 wait is 70 s, and by fifo nobody waited",)
    assert judged(lambda who, _: run(50.0 if who == BEST else 100.0, 0.0)).wins


def test_window_in_which_one_ended_no_gang_is_a_reason_and_no_error() -> None:
    def run_of(who: Contender, world: World) -> SimulationMetrics:
        nothing = who == OWN and world is WORLDS[2]
        return run(None, 1.0) if nothing else run(50.0 if who == BEST else 100.0, 1.0)

    found = judged(run_of)
    assert (found.verdict.worlds, found.verdict.unfinished) == (5, RUN.jobs)
    (reason,) = found.reasons
    assert reason.startswith(f"{RUN.jobs} gangs never ended")
