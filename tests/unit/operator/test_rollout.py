"""Promotion and rollback: what outcomes call for it, and that no policy goes back and forth."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.decision import Decision
from bireme.core.errors import SettingError
from bireme.core.policy import Policy
from bireme.core.regret import RegretSample
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.kube.api.scheduling_policy import RolloutSpec, SchedulingPolicyStatus
from bireme.kube.policy_source import PolicyFacts
from bireme.rl.lookup import PolicySource
from bireme.rl.shadow import RegretEstimate
from bireme_operator.cluster_reports import policy_status
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.policies import LoadedPolicy, Policies, ShadowStats
from bireme_operator.rollout import MAX_OVERRULED, in_words, is_better, is_worse
from testbed.objects.facts import CREATED
from testbed.objects.policies import delete, put, settled

AUTOMATIC = {"promote": "Automatic", "rollBack": "Automatic"}
BETTER = RegretEstimate(40, 10.0, 5.0, 15.0, 0.1)
OPEN = RegretEstimate(40, 1.0, -5.0, 7.0, 0.01)
WORSE = RegretEstimate(40, -10.0, -15.0, -5.0, -0.1)
OVERRULED = Decision(fallback="the orderer failed: nan")


@dataclass(slots=True)
class Told(ShadowStats):
    """A comparison that came to ``told``."""

    told: RegretEstimate | None = None

    @property
    def outcome(self) -> RegretEstimate | None:
        return self.told


def load(facts: PolicyFacts) -> LoadedPolicy:
    if facts.name == "broken":
        raise SettingError("it cannot be loaded")
    source = PolicySource(facts.name, orderer=str(facts.generation))
    return LoadedPolicy(Policy(Fifo(), Packing()), facts.uid, source)


@dataclass
class Cluster:
    """SchedulingPolicies as the API server keeps them, and the leader that writes statuses."""

    specs: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    statuses: dict[str, dict[str, Any]] = field(default_factory=dict)
    generations: int = 0
    leader: Policies = field(init=False)
    metrics: OperatorMetrics = field(init=False)

    def __post_init__(self) -> None:
        self.lead()

    def lead(self, general: str = "") -> None:
        """Let another leader take over, who knows what stands in the objects alone."""
        self.metrics = OperatorMetrics()
        rules = Policy(Fifo(), Packing())
        self.leader = Policies(rules, load, self.metrics.policies, lambda: None, general=general)
        for name in self.specs:
            self._show(name)

    async def edit(self, name: str, stage: str = "Active", **rollout: Any) -> None:
        self.generations += 1
        spec = {"orderer": "fifo", "stage": stage, "rollout": rollout}
        if stage == "Canary":
            spec["canary"] = {"queues": ["research"]}
        self.specs[name] = self.generations, spec
        self._show(name)
        await self.report()

    async def remove(self, name: str) -> None:
        del self.specs[name]
        self.statuses.pop(name, None)
        delete(self.leader.known, name)
        await self.report()

    def _show(self, name: str) -> None:
        generation, spec = self.specs[name]
        status = self.statuses.get(name, {})
        age = {"older": 90.0, "old": 60.0, "middle": 30.0}.get(name, 0.0)
        put(self.leader.known, name, generation=generation, age=age, status=status, **spec)

    async def report(self) -> None:
        """Load what counts, write every status, and show the leader what it has written."""
        await settled(partial(self._is_reported))
        for name in self.specs:
            facts = self.leader.known.known[name]
            self.statuses[name] = policy_status(facts, self.leader, CREATED) or {}
            self._show(name)

    def _is_reported(self) -> bool:
        known = self.leader.known.known
        return all(policy_status(each, self.leader, CREATED) for each in known.values())

    def tell(self, name: str, outcome: RegretEstimate) -> bool:
        """Let what judges a policy come to ``outcome``; False where it is compared with nothing."""
        evidence = self.leader.evidence(self.leader.known.known[name])
        if evidence is None:
            return False
        evidence[0].stats.shadow = Told(told=outcome)
        return True

    def play(self, name: str, *samples: RegretSample) -> None:
        """Let these moments be played forward for what judges a policy."""
        evidence = self.leader.evidence(self.leader.known.known[name])
        assert evidence is not None
        evidence[1].add_samples(self.leader.deciding.source, *samples)

    def has_samples(self) -> bool:
        evidence = self.leader.evidence(self.leader.known.known["old"])
        return evidence is not None and bool(evidence[1].samples)

    def fail(self, name: str) -> None:
        """Have the rules answer in place of a policy, if it decides."""
        facts = self.leader.known.known[name]
        decider = self.leader.decider(facts)
        if decider is not None and self.stage(name) in ("Active", "Canary"):
            for _ in range(MAX_OVERRULED):
                decider.stats.add(OVERRULED)

    async def judge(self) -> None:
        self.leader.judge()
        await self.report()

    def stage(self, name: str) -> str:
        return str(self.leader.known.effective_stage(self.leader.known.known[name]).stage)

    def stages(self) -> dict[str, str]:
        return {name: self.stage(name) for name in self.specs}

    def deciding(self) -> tuple[str, tuple[str, ...]]:
        return self.leader.deciding.name, tuple(each.name for each in self.leader.canaries)

    def condition(self, name: str, kind: str) -> tuple[str, str, str]:
        found = next(c for c in self.statuses[name]["conditions"] if c["type"] == kind)
        return found["status"], found["reason"], found["message"]

    def counted(self, what: str, reason: str) -> float:
        name = f"bireme_policy_{what}_total"
        return self.metrics.registry.get_sample_value(name, {"reason": reason}) or 0.0


@pytest.mark.parametrize(
    ("outcome", "asked", "better", "worse"),
    [
        (BETTER, {}, True, False),
        (WORSE, {}, False, True),
        (OPEN, {}, False, False),
        (None, {}, False, False),
        (RegretEstimate(40, 10.0, None, None, 0.1), {}, False, False),
        (BETTER, {"minimumSamples": 41}, False, False),
        (WORSE, {"minimumSamples": 41}, False, False),
        (BETTER, {"margin": 0.049}, True, False),
        (BETTER, {"margin": 0.05}, False, False),
        (WORSE, {"margin": 0.049}, False, True),
        (WORSE, {"margin": 0.05}, False, False),
        (RegretEstimate(40, 0.0, 0.0, 0.0, 0.0), {}, False, False),
    ],
)
def test_an_interval_must_lie_wholly_beyond_the_margin_and_rest_on_enough_samples(
    outcome: RegretEstimate | None, asked: Mapping[str, Any], better: bool, worse: bool
) -> None:
    rollout = RolloutSpec.model_validate(asked)
    assert (is_better(outcome, rollout), is_worse(outcome, rollout)) == (better, worse)


def test_the_words_have_all_numbers() -> None:
    said = in_words(WORSE, RolloutSpec(margin=0.02))
    for number in (
        "10.0 s more",
        "10.0%",
        "-15.0 s to -5.0 s",
        "40 samples",
        "at least 40",
        "2.0%",
    ):
        assert number in said


async def test_a_shadow_that_does_better_decides_and_one_that_turns_bad_decides_no_more() -> None:
    cluster = Cluster()
    await cluster.edit("old")
    await cluster.edit("new", "Shadow", **AUTOMATIC)
    assert cluster.tell("new", OPEN)
    await cluster.judge()
    assert cluster.deciding() == ("old", ())
    assert cluster.condition("new", "Promoted")[:2] == ("False", "ComparisonOpen")
    cluster.tell("new", BETTER)
    await cluster.judge()
    assert cluster.deciding() == ("new", ()), "though it is younger"
    status, reason, message = cluster.condition("new", "Promoted")
    assert (status, reason) == ("True", "OutcomeBetter")
    assert "10.0 s less" in message
    assert message.endswith("it decides in place of SchedulingPolicy old")
    superseded = "SchedulingPolicy new was promoted, and decides"
    assert cluster.condition("old", "Loaded") == ("False", "Superseded", superseded)
    assert cluster.counted("promotions", "OutcomeBetter") == 1.0
    rival, _ = cluster.leader.evidence(cluster.leader.known.known["new"]) or (None, None)
    assert rival is not None
    assert rival.name == "old", "the one before is played on"
    cluster.tell("new", BETTER)
    await cluster.judge()
    assert cluster.deciding() == ("old", ())
    assert cluster.condition("new", "RolledBack")[:2] == ("True", "OutcomeWorse")
    assert cluster.condition("new", "RolledBack")[2].endswith("SchedulingPolicy old decides now")
    assert cluster.condition("new", "Loaded")[1] == "RolledBack"
    assert cluster.counted("rollbacks", "OutcomeWorse") == 1.0


async def test_a_policy_whose_rules_must_answer_too_often_is_rolled_back() -> None:
    cluster = Cluster()
    await cluster.edit("bad", rollBack="Automatic")
    facts = cluster.leader.known.known["bad"]
    decider = cluster.leader.decider(facts)
    assert decider is not None
    for turn in range(2 * (MAX_OVERRULED - 1)):
        decider.stats.add(OVERRULED if turn % 2 else Decision())
    await cluster.judge()
    assert cluster.deciding() == ("bad", ()), "half of the latest twenty is not more than half"
    decider.stats.add(OVERRULED)
    await cluster.judge()
    assert cluster.deciding() == ("", ())
    status, reason, message = cluster.condition("bad", "RolledBack")
    assert (status, reason) == ("True", "RulesAnswered")
    assert message.startswith("the rules answered in its place in 11 of its latest 20 cycles")
    assert "the orderer failed: nan; the settings decide now" in message


async def test_a_canary_that_does_worse_leaves_its_queues_to_the_active_policy() -> None:
    cluster = Cluster()
    await cluster.edit("old")
    await cluster.edit("new", "Canary", **AUTOMATIC)
    assert cluster.deciding() == ("old", ("new",))
    assert [c.name for c in cluster.leader.in_force.policy.canaries] == ["new"]
    assert cluster.leader.in_force.source.canaries[0].queues == ("research",)
    cluster.tell("new", WORSE)
    await cluster.judge()
    assert cluster.deciding() == ("old", ())
    assert cluster.leader.in_force.policy.canaries == ()
    assert cluster.condition("new", "RolledBack")[:2] == ("True", "OutcomeWorse")


async def test_the_younger_canary_says_who_decides_for_its_queues() -> None:
    cluster = Cluster()
    await cluster.edit("old", "Canary")
    await cluster.edit("new", "Canary")
    words = "SchedulingPolicy old, an older canary, decides for research"
    assert cluster.condition("new", "Loaded") == ("False", "Superseded", words)
    assert cluster.condition("old", "Loaded")[2] == "it decides for research"


async def test_nothing_is_promoted_or_rolled_back_that_does_not_ask_for_it() -> None:
    cluster = Cluster()
    await cluster.edit("old")
    await cluster.edit("new", "Shadow")
    await cluster.edit("canary", "Canary")
    before = cluster.stages()
    cluster.tell("new", BETTER)
    assert not cluster.tell("old", BETTER)
    cluster.tell("canary", WORSE)
    for name in before:
        cluster.fail(name)
    await cluster.judge()
    assert cluster.stages() == before
    kinds = {c["type"] for status in cluster.statuses.values() for c in status["conditions"]}
    assert kinds == {"Loaded", "Degraded"}


async def test_a_new_leader_reads_in_the_status_what_was_promoted_and_what_rolled_back() -> None:
    cluster = Cluster()
    await cluster.edit("old", rollBack="Automatic")
    for name in ("middle", "young"):
        await cluster.edit(name, "Shadow", **AUTOMATIC)
        cluster.tell(name, BETTER)
        await cluster.judge()
        assert cluster.deciding() == (name, ()), "the last to be promoted was measured against it"
    cluster.fail("young")
    await cluster.judge()
    before = cluster.stages()
    assert before == {"old": "Active", "middle": "Active", "young": "RolledBack"}
    words = cluster.condition("young", "RolledBack")
    cluster.lead()
    await cluster.report()
    assert cluster.stages() == before
    assert cluster.deciding() == ("middle", ())
    assert cluster.condition("young", "RolledBack") == words
    assert not cluster.tell("young", BETTER), "it is not even compared"
    await cluster.edit("young", "Shadow", **AUTOMATIC)
    assert cluster.tell("young", OPEN)
    assert cluster.condition("young", "Promoted")[:2] == ("False", "ComparisonOpen")
    assert "RolledBack" not in {c["type"] for c in cluster.statuses["young"]["conditions"]}


async def test_what_was_rolled_back_does_not_go_on_because_the_next_one_is_broken() -> None:
    cluster = Cluster()
    await cluster.edit("old", rollBack="Automatic")
    await cluster.edit("broken")
    assert cluster.deciding() == ("old", ())
    cluster.fail("old")
    await cluster.judge()
    assert cluster.deciding() == ("", ())
    await cluster.leader.close()


async def test_comparisons_with_the_policy_before_count_for_nothing() -> None:
    cluster = Cluster()
    await cluster.edit("old", rollBack="Automatic")
    await cluster.edit("young", "Shadow", **AUTOMATIC)
    cluster.tell("young", BETTER)
    await cluster.edit("old", rollBack="Automatic")
    await cluster.judge()
    assert cluster.stages() == {"old": "Active", "young": "Shadow"}


# --- whatever happens, in whatever order ----------------------------------------------------------

NAMES = ("old", "middle", "young")
_WHO = st.sampled_from(NAMES)
_ASKED = st.fixed_dictionaries(
    {key: st.sampled_from(("Never", "Automatic", "Automatic")) for key in AUTOMATIC}
)
STEPS = st.one_of(
    st.tuples(st.just("edit"), _WHO, st.sampled_from(("Active", "Shadow", "Canary")), _ASKED),
    st.tuples(st.just("tell"), _WHO, st.sampled_from((BETTER, BETTER, OPEN, WORSE))),
    st.tuples(st.just("fail"), _WHO),
    st.tuples(st.just("delete"), _WHO),
    st.tuples(st.just("lead")),
)
ORDER = {"Shadow": 0, "Canary": 0, "Active": 1, "RolledBack": 2}


async def follow(steps: list[tuple[Any, ...]]) -> None:
    cluster = Cluster()
    for step in steps:
        before = {name: (cluster.specs[name][0], cluster.stage(name)) for name in cluster.specs}
        decided = cluster.deciding()
        match step:
            case ("edit", name, stage, asked):
                await cluster.edit(name, stage, **asked)
                assert cluster.stage(name) == stage, "a change of the spec begins anew"
            case ("tell", name, outcome) if name in cluster.specs:
                if cluster.tell(name, outcome):
                    await cluster.judge()
            case ("fail", name) if name in cluster.specs:
                cluster.fail(name)
                await cluster.judge()
            case ("delete", name) if name in cluster.specs:
                await cluster.remove(name)
            case ("lead",):
                await cluster.leader.close()
                cluster.lead()
                await cluster.report()
                assert cluster.deciding() == decided, "it stands in the statuses"
        for name, (generation, stage) in before.items():
            if name not in cluster.specs or cluster.specs[name][0] != generation:
                continue
            now = cluster.stage(name)
            assert ORDER[now] >= ORDER[stage], "nothing leads back"
            asked = cluster.specs[name][1]["rollout"]
            if now != stage:
                assert step[0] in ("tell", "fail"), "only outcomes change a stage"
                key = "promote" if now == "Active" else "rollBack"
                assert asked.get(key) == "Automatic"
        stages = cluster.stages()
        assert {n: s["stage"] for n, s in cluster.statuses.items()} == stages
        deciding, canaries = cluster.deciding()
        assert deciding == "" or stages[deciding] == "Active"
        assert (deciding == "") == ("Active" not in stages.values())
        assert canaries == tuple(name for name in NAMES if stages.get(name) == "Canary")
        if deciding:
            promoted = [n for n in stages if cluster.specs[n][1]["stage"] != stages[n] == "Active"]
            by_spec = [
                n for n in NAMES if cluster.specs.get(n, (0, {}))[1].get("stage") == "Active"
            ]
            left = [n for n in by_spec if stages[n] == "Active"]
            assert deciding in promoted or (not promoted and deciding == left[0])
    await cluster.leader.close()


@given(st.lists(STEPS, min_size=6, max_size=25))
def test_stages_only_go_forward_and_survive_a_new_leader(steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(follow(steps))


# --- another leader -------------------------------------------------------------------------------

PLAYED = [RegretSample(100.0 + n % 7, 99.0 - n % 3) for n in range(60)]


async def compared(stage: str) -> Cluster:
    """A cluster in which ``old`` is compared in ``PLAYED``: as a shadow, or with its rival."""
    cluster = Cluster()
    if stage == "Active":
        await cluster.edit("middle")
        await cluster.edit("old", rollBack="Automatic")
    else:
        await cluster.edit("middle", "Active")
        await cluster.edit("old", stage, promote="Automatic")
    cluster.play("old", *PLAYED)
    await cluster.report()
    assert cluster.statuses["old"]["shadow"]["samples"] == len(PLAYED)
    SchedulingPolicyStatus.model_validate(cluster.statuses["old"])
    return cluster


@pytest.mark.parametrize("stage", ["Active", "Canary", "Shadow"])
async def test_another_leader_goes_on_with_the_moments_that_were_played(stage: str) -> None:
    cluster = await compared(stage)
    for _ in range(3):
        before = cluster.statuses["old"]["shadow"]
        cluster.lead()
        await settled(cluster.has_samples)  # a rival may be loaded after the first report
        await cluster.report()
        assert cluster.statuses["old"]["shadow"] == before
    cluster.play("old", RegretSample(1234567.0, 0.125))
    await cluster.report()
    assert cluster.statuses["old"]["shadow"]["samples"] == len(PLAYED) + 1
    assert cluster.statuses["old"]["shadow"]["history"]["moments"].endswith(" 1234567/0.125")


async def test_the_latest_moments_are_kept_within_what_the_status_may_hold() -> None:
    cluster = await compared("Shadow")
    cluster.play("old", *[RegretSample(1.2345678e-05, 9.8765432e19)] * 300)
    await cluster.report()
    status = SchedulingPolicyStatus.model_validate(cluster.statuses["old"])
    assert status.shadow is not None
    assert status.shadow.samples == 200
    cluster.lead()
    await cluster.report()
    assert cluster.statuses["old"]["shadow"]["samples"] == 200


@pytest.mark.parametrize("change", ["settings", "spec", "rival", "text"])
async def test_moments_of_another_comparison_are_played_again(change: str) -> None:
    cluster = await compared("Shadow")
    match change:
        case "settings":
            cluster.lead("another version")
        case "spec":
            cluster.lead()
            await cluster.edit("old", "Shadow", promote="Never")
        case "rival":
            cluster.lead()
            await cluster.edit("middle")
        case "text":
            cluster.statuses["old"]["shadow"]["history"]["moments"] = "1/2 3"
            cluster.lead()
    await cluster.report()
    assert "samples" not in cluster.statuses["old"].get("shadow", {})


async def test_who_came_to_decide_in_between_ends_the_comparison_for_good() -> None:
    cluster = await compared("Shadow")
    cluster.lead()
    await cluster.report()
    await cluster.edit("older")
    assert cluster.deciding() == ("older", ())
    await cluster.remove("older")
    assert cluster.deciding() == ("middle", ())
    assert "samples" not in cluster.statuses["old"].get("shadow", {})
