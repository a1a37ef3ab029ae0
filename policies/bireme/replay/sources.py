"""The policies that decided a record, made again so that they can decide once more.

The settings name one; SchedulingPolicies take its place for as long as they exist. A learned policy
can only be made again where its checkpoint is at hand.
"""

from collections import Counter

from bireme.core.errors import error_text
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.registry import make_policy
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource, policy_of


class RecordedPolicies:
    """Policies by :class:`~bireme.rl.lookup.PolicySource`.

    ``own`` is that of ``settings``; checkpoints are looked for below ``directory``, then among
    those that come with Bireme.

    Attributes:
        cycles: How many each of them decided.
        faults: Why some cannot be made again.
    """

    def __init__(self, own: Policy, settings: SchedulingSettings, directory: str = "") -> None:
        self.cycles: Counter[PolicySource] = Counter()
        self.faults: dict[PolicySource, str] = {}
        self._settings = settings
        self._directory = directory
        self._policies = {SETTINGS_SOURCE: own}

    def policy(self, source: PolicySource) -> Policy | None:
        """Count a cycle of ``source``; return its policy, None where it cannot be made again."""
        self.cycles[source] += 1
        if source not in self._policies and source not in self.faults:
            self._make(source)
        return self._policies.get(source)

    def _make(self, source: PolicySource) -> None:
        try:
            made, _ = policy_of(source, self._settings, make_policy, self._directory)
            self._policies[source] = made
        except Exception as error:  # noqa: BLE001  # a class of the user's own may raise anything
            self.faults[source] = error_text(error)
