"""Quotas of namespaces: the limits on the pods of a namespace, whichever queue they use.

A queue limits gangs; a ResourceQuota limits pods, and the API server refuses the first pod beyond
it. So a gang is admitted only if all of its pods are within every quota that counts them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bireme.core.gangs import Gang, Key
from bireme.core.resources import Amounts, add


@dataclass(frozen=True, slots=True)
class Quota:
    """One ResourceQuota. Its resources are those of quotas, ``requests.cpu`` for instance."""

    namespace: str
    name: str
    hard: Amounts
    used: Amounts
    """Usage of pods that exist, or are about to be created."""

    def excess(self, used: Amounts, demand: Amounts) -> dict[str, tuple[int, int, int]]:
        """Return the resources in which ``used + demand`` exceeds it: name -> (asked, used,
        hard).
        """
        return {
            name: (amount, used.get(name, 0), self.hard[name])
            for name, amount in sorted(demand.items())
            if amount > 0 and used.get(name, 0) + amount > self.hard.get(name, amount)
        }


@dataclass(slots=True)
class QuotaLedger:
    """The quotas of one cycle, by namespace and name, and their remaining amounts."""

    quotas: Mapping[Key, Quota]
    _usage: dict[Key, dict[str, int]] = field(default_factory=dict)

    def excess(
        self, gang: Gang, when_unused: bool = False
    ) -> tuple[Quota, dict[str, tuple[int, int, int]]] | None:
        """Return the first quota that ``gang`` would exceed, and its resources; None if none.

        With ``when_unused`` as if its namespace had no other pods.
        """
        for name, demand in gang.charges.items():
            quota = self.quotas.get((gang.namespace, name))
            if quota is None:
                continue
            used = {} if when_unused else add(quota.used, self._usage.get(_key(quota), {}))
            if over := quota.excess(used, demand):
                return quota, over
        return None

    def take(self, gang: Gang) -> None:
        """Count ``gang`` as one whose pods are about to be created."""
        for name, demand in gang.charges.items():
            key = (gang.namespace, name)
            self._usage[key] = add(self._usage.get(key, {}), demand)


def _key(quota: Quota) -> Key:
    return quota.namespace, quota.name
