"""Whatever administrators do in whatever order: what decides is what the rules of choice say."""

import asyncio
from dataclasses import dataclass
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from bireme.core.errors import SettingError
from bireme.core.policy import Policy
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.kube.policy_source import PolicyFacts
from bireme.rl.lookup import PolicySource
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.policies import LoadedPolicy, Policies
from testbed.objects.policies import delete, put, settled

AGES = {"old": 60.0, "middle": 30.0, "young": 0.0}


@dataclass(frozen=True)
class Edit:
    """An edit of a policy by an administrator; neither good nor bad deletes it."""

    name: str
    kind: str


EDITS = st.builds(Edit, st.sampled_from(list(AGES)), st.sampled_from(["good", "bad", "shadow", ""]))


def load(facts: PolicyFacts) -> LoadedPolicy:
    assert facts.spec is not None
    if facts.spec.orderer == "bad":
        raise SettingError("it is bad")
    source = PolicySource(facts.name, orderer=str(facts.generation))
    return LoadedPolicy(Policy(Fifo(), Packing()), facts.uid, source)


def expected(kinds: dict[str, tuple[str, int]], before: str) -> str:
    """The deciding spec when all is loaded: of the oldest Active if it is good, else as before."""
    active = [name for name in AGES if kinds.get(name, ("shadow", 0))[0] != "shadow"]
    if not active:
        return ""
    kind, generation = kinds[active[0]]
    return f"{active[0]} {generation}" if kind == "good" else before


def is_loaded(policies: Policies) -> bool:
    """Whether everything that counts has been loaded or refused."""
    wanted = [*policies.known.shadows, *filter(None, [policies.known.active])]
    return all(policies.outcome(policy) for policy in wanted)


async def follow(edits: list[Edit]) -> None:
    rules = Policy(Fifo(), Packing())
    policies = Policies(rules, load, OperatorMetrics().policies, lambda: None)
    known = policies.known
    kinds: dict[str, tuple[str, int]] = {}
    decides = ""
    for generation, edit in enumerate(edits, 1):
        if edit.kind:
            spec = {"orderer": edit.kind}
            stage = "Shadow" if edit.kind == "shadow" else "Active"
            put(known, edit.name, generation=generation, age=AGES[edit.name], stage=stage, **spec)
            kinds[edit.name] = (edit.kind, generation)
        else:
            delete(known, edit.name)
            kinds.pop(edit.name, None)
        await settled(partial(is_loaded, policies))
        decides = expected(kinds, decides)
        found = policies.deciding.source
        assert f"{found.name} {found.orderer}".strip() == decides
    shadows = {name for name, (kind, _) in kinds.items() if kind == "shadow"}
    assert {shadow.name for shadow in policies.shadows} == shadows
    await policies.close()


@given(st.lists(EDITS, max_size=12))
def test_the_oldest_active_policy_that_could_be_loaded_decides(edits: list[Edit]) -> None:
    asyncio.run(follow(edits))
