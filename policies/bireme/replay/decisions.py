"""The policies that decided a record, made again from their sources."""

from collections import Counter

from bireme.core.errors import error_text
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.registry import make_policy
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource, policy_of


class RecordedPolicies:
    """The policies that decided a record, by :class:`~bireme.rl.lookup.PolicySource`.

    ``settings_policy`` is the policy of ``settings``, which SchedulingPolicies replace while they
    exist. Checkpoints are searched below ``directory``, then among those that come with Bireme.

    Attributes:
        cycles: Number of cycles that each of them decided.
        faults: Reasons why a policy cannot be loaded.
    """

    def __init__(
        self, settings_policy: Policy, settings: SchedulingSettings, directory: str = ""
    ) -> None:
        self.cycles: Counter[PolicySource] = Counter()
        self.faults: dict[PolicySource, str] = {}
        self._settings = settings
        self._directory = directory
        self._policies = {SETTINGS_SOURCE: settings_policy}

    def policy(self, source: PolicySource) -> Policy | None:
        """Count a cycle of ``source``; return its policy, None if it cannot be loaded."""
        self.cycles[source] += 1
        if source not in self._policies and source not in self.faults:
            try:
                policy, _ = policy_of(source, self._settings, make_policy, self._directory)
                self._policies[source] = policy
            except Exception as error:  # noqa: BLE001  # a class of the user's own may raise anything
                self.faults[source] = error_text(error)
        return self._policies.get(source)
