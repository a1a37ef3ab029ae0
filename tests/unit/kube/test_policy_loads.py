"""Loading beside the event loop: each spec once, failures again after a pause."""

import threading

import pytest

from bireme.core.errors import SettingError
from bireme.kube import policy_source
from bireme.kube.policy_source import LoadOutcome, PolicyFacts, PolicyLoads
from testbed.objects.policies import facts_of, settled


class Loader:
    """Loads a policy as its name and generation; ``faults`` are raised for a name instead."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.faults: dict[str, Exception] = {}
        self.done: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.loads = PolicyLoads(self._load, self._done)

    def _load(self, policy: PolicyFacts) -> str:
        assert threading.current_thread() is not threading.main_thread()
        assert self.gate.wait(10)
        self.asked.append(f"{policy.name}/{policy.generation}")
        if policy.name in self.faults:
            raise self.faults[policy.name]
        return self.asked[-1]

    def _done(self, policy: PolicyFacts, outcome: LoadOutcome[str]) -> None:
        self.done.append(outcome.value or outcome.fault)


async def test_every_spec_is_loaded_once() -> None:
    one, two, loader = facts_of("one"), facts_of("two"), Loader()
    loader.loads.want([one, two])
    await settled(lambda: len(loader.done) == 2)
    loader.loads.want([facts_of("one", status={"decisions": 1}), two])
    again = facts_of("two", generation=2)
    loader.loads.want([one, again])
    assert loader.loads.outcome(again) is None
    await settled(lambda: len(loader.done) == 3)
    assert loader.asked == ["one/1", "two/1", "two/2"]
    assert loader.loads.outcome(one) == LoadOutcome(one.demand, "one/1")
    assert loader.loads.outcome(again) == LoadOutcome(again.demand, "two/2")
    assert loader.loads.outcome(two) is None, "that spec is no more"


async def test_what_is_wanted_no_more_while_it_is_loaded_comes_to_nothing() -> None:
    loader = Loader()
    loader.gate.clear()
    loader.loads.want([facts_of("gone")])
    await settled(lambda: loader.loads._tasks)
    loader.loads.want([facts_of("kept")])
    loader.gate.set()
    await settled(lambda: loader.done)
    assert loader.done == ["kept/1"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SettingError("no orderer is called 'x'"), "no orderer is called 'x'"),
        (
            ZeroDivisionError("by a class of one's own"),
            "ZeroDivisionError: by a class of one's own",
        ),
    ],
)
async def test_a_failure_is_described_in_words(error: Exception, words: str) -> None:
    loader, policy = Loader(), facts_of("bad")
    loader.faults["bad"] = error
    loader.loads.want([policy, facts_of("good")])
    await settled(lambda: len(loader.done) == 2)
    await loader.loads.close()
    assert loader.loads.outcome(policy) == LoadOutcome(policy.demand, fault=words)
    assert loader.done == [words, "good/1"]


async def test_a_spec_that_cannot_be_read_is_not_loaded() -> None:
    loader, policy = Loader(), facts_of("odd", stage="Maybe", orderer="fifo")
    loader.loads.want([policy])
    await settled(lambda: loader.done)
    await loader.loads.close()
    assert loader.asked == []
    assert "spec.stage" in loader.done[0]


async def test_a_failure_stands_until_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_source, "RETRY_SECONDS", 0.05)
    loader, policy = Loader(), facts_of("late")
    loader.faults["late"] = SettingError("not yet")
    loader.loads.want([policy])
    await settled(lambda: loader.done)
    loader.gate.clear()
    loader.faults.clear()
    assert loader.loads.outcome(policy) == LoadOutcome(policy.demand, fault="not yet")
    loader.gate.set()
    await settled(lambda: loader.loads.outcome(policy) == LoadOutcome(policy.demand, "late/1"))
    assert loader.asked == ["late/1", "late/1"]
