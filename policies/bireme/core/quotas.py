"""Quotas of namespaces: what the pods of a namespace may ask together, whichever queue they use.

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
    """What pods use that exist, or are about to be created."""

    def excess(self, used: Amounts, asked: Amounts) -> dict[str, tuple[int, int, int]]:
        """Return what ``used + asked`` would pass: resource name -> (asked, used, hard)."""
        return {
            name: (amount, used.get(name, 0), self.hard[name])
            for name, amount in sorted(asked.items())
            if amount > 0 and used.get(name, 0) + amount > self.hard.get(name, amount)
        }


@dataclass(slots=True)
class QuotaLedger:
    """The quotas of one cycle, by namespace and name, and what they have left."""

    quotas: Mapping[Key, Quota]
    _taken: dict[Key, dict[str, int]] = field(default_factory=dict)

    def excess(
        self, gang: Gang, when_unused: bool = False
    ) -> tuple[Quota, dict[str, tuple[int, int, int]]] | None:
        """Return the first quota that ``gang`` would pass, and in what; None if it passes none.

        With ``when_unused`` as if nothing else were in its namespace.
        """
        for name, asked in gang.charges.items():
            quota = self.quotas.get((gang.namespace, name))
            if quota is None:
                continue
            used = {} if when_unused else add(quota.used, self._taken.get(_key(quota), {}))
            if found := quota.excess(used, asked):
                return quota, found
        return None

    def take(self, gang: Gang) -> None:
        """Count ``gang`` as one whose pods are about to be created."""
        for name, asked in gang.charges.items():
            key = (gang.namespace, name)
            self._taken[key] = add(self._taken.get(key, {}), asked)


def _key(quota: Quota) -> Key:
    return quota.namespace, quota.name
