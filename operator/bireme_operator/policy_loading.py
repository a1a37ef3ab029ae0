"""From a SchedulingPolicy to a policy that can decide. Reads files; run it in a thread."""

from bireme.core.settings import SchedulingSettings
from bireme.kube.api import SchedulingPolicySpec
from bireme.kube.scheduling_policies import PolicyFacts
from bireme.records.lines import Source
from bireme.registry import make_policy
from bireme.rl import named
from bireme_operator.policies import Decider


def decider_of(facts: PolicyFacts, settings: SchedulingSettings, directory: str) -> Decider:
    """The policy of ``facts``; ``settings`` name what it leaves out.

    Raises:
        SettingError: it names what does not exist.
        CheckpointError: its checkpoint, from ``directory`` or shipped, cannot be used.
    """
    assert facts.spec is not None  # noqa: S101  # a spec that cannot be read is never loaded
    source = _source(facts.name, facts.spec)
    policy, source = named.policy_of(source, settings, make_policy, directory)
    return Decider(policy, facts.uid, source)


def _source(name: str, spec: SchedulingPolicySpec) -> Source:
    parts = (spec.orderer or "", spec.placer or "", spec.sizer or "")
    if spec.checkpoint is None:
        return Source(name, *parts)
    return Source(name, *parts, spec.checkpoint.name, spec.checkpoint.sha256 or "")
