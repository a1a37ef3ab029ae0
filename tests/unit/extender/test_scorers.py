"""The scorer that a SchedulingPolicy stands for, and when it takes over."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bireme.core.policy import Scorer
from bireme.heuristics.scoring import BestFitScorer
from bireme.rl.components import LearnedScorer
from bireme_extender.scoring import ScorerLoader, scorer_of
from testbed.extender_calls import make_metrics
from testbed.networks import encoders
from testbed.objects.policies import delete, facts_of, put, settled
from testbed.trained_policies import train


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with encoders.known():
        yield


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    return train(tmp_path / "trained")


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({"checkpoint": {"name": "last"}}, LearnedScorer),
        ({"checkpoint": {"name": "last"}, "orderer": "fifo"}, LearnedScorer),
        ({"checkpoint": {"name": "fewest"}}, BestFitScorer),
        ({"checkpoint": {"name": "fewest"}, "placer": "fgd"}, BestFitScorer),
        ({"orderer": "fifo"}, BestFitScorer),
        ({"placer": "packing"}, BestFitScorer),
        ({"placer": "not_installed.here:Mine"}, BestFitScorer),
    ],
)
def test_only_a_learned_placer_scores_nodes(
    trained: Path, spec: dict[str, Any], kind: type[Scorer]
) -> None:
    assert type(scorer_of(facts_of("policy", **spec), str(trained))) is kind


class Loader:
    """A ScorerLoader and its metrics."""

    def __init__(self, trained: Path) -> None:
        self.metrics = make_metrics()
        self.scorers = ScorerLoader(str(trained), self.metrics)
        self.known = self.scorers.known

    def sample(self, name: str, **labels: str) -> float:
        found = self.metrics.registry.get_sample_value(f"bireme_extender_{name}", labels)
        return found or 0.0


async def test_a_scorer_takes_over_once_it_is_loaded_and_until_the_policy_is_gone(
    trained: Path,
) -> None:
    loader = Loader(trained)
    put(loader.known, "shadow", stage="Shadow", checkpoint={"name": "first"})
    put(loader.known, "policy", checkpoint={"name": "last"})
    await settled(lambda: loader.sample("learned_scorer"))
    assert isinstance(loader.scorers.scorer, LearnedScorer)
    delete(loader.known, "policy")
    assert isinstance(loader.scorers.scorer, BestFitScorer)
    assert loader.sample("learned_scorer") == 0.0
    assert loader.sample("policy_loads_total", outcome="loaded") == 1.0


async def test_what_cannot_be_loaded_takes_over_nothing(trained: Path) -> None:
    loader = Loader(trained)
    put(loader.known, "policy", checkpoint={"name": "last"})
    await settled(lambda: isinstance(loader.scorers.scorer, LearnedScorer))
    before = loader.scorers.scorer
    put(loader.known, "policy", generation=2, checkpoint={"name": "missing"})
    await settled(lambda: loader.sample("policy_loads_total", outcome="failed"))
    assert loader.scorers.scorer is before
    await loader.scorers.close()


async def test_a_status_written_while_it_is_loaded_does_not_keep_it_out(trained: Path) -> None:
    loader = Loader(trained)
    put(loader.known, "policy", checkpoint={"name": "last"})
    put(loader.known, "policy", checkpoint={"name": "last"}, status={"decisions": 1})
    await settled(lambda: loader.sample("learned_scorer"))
