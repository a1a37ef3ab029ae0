"""From a SchedulingPolicy to a policy that can decide. Reads files; run it in a thread."""

from bireme.core.settings import SchedulingSettings
from bireme.kube.scheduling_policies import PolicyFacts
from bireme.registry import make_policy
from bireme.rl import named
from bireme_operator.policies import Decider


def decider_of(facts: PolicyFacts, settings: SchedulingSettings, directory: str) -> Decider:
    """The policy of ``facts``; ``settings`` name what it leaves out.

    Raises:
        SettingError: it names what does not exist.
        CheckpointError: its checkpoint, from ``directory`` or shipped, cannot be used.
    """
    policy, source = named.policy_of(named.source_of(facts), settings, make_policy, directory)
    return Decider(policy, facts.uid, source)
