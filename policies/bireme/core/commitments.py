"""Commitments of a cycle: places on nodes and shares of queues and quotas, taken together."""

from dataclasses import dataclass

from bireme.core.gangs import Gang
from bireme.core.placement import Placement
from bireme.core.queue_tree import QueueTree
from bireme.core.quotas import QuotaLedger
from bireme.core.reservations import CapacityLedger


@dataclass(frozen=True, slots=True)
class Commitments:
    """Whatever a cycle has promised to gangs so far; later gangs find none of it.

    Attributes:
        ledger: Places on nodes.
        queues: Usage of queues.
        quotas: Charges on the quotas of namespaces.
    """

    ledger: CapacityLedger
    queues: QueueTree
    quotas: QuotaLedger

    def allow(self, gang: Gang) -> bool:
        """Return whether its queues, beside the blocked gang, and its quotas allow ``gang``."""
        # Even a gang that ends in time may not pass: the limit would still stop the blocked gang,
        # and any other gang could take the places.
        if self.queues.excess(gang.queue, gang.demand, beside_reserved=True) is not None:
            return False
        return not gang.charges or self.quotas.excess(gang) is None

    def start(self, gang: Gang, placement: Placement, is_opportunistic: bool = False) -> None:
        """Give ``gang`` its places now; an opportunistic one may yield to the blocked gang."""
        self.ledger.take(gang, placement, is_opportunistic)
        self._charge(gang)

    def keep(self, gang: Gang, placement: Placement) -> None:
        """Keep others off ``placement``, where gangs that end make room for ``gang``."""
        self.ledger.keep(gang, placement)
        self._charge(gang)

    def _charge(self, gang: Gang) -> None:
        self.queues.take(gang.queue, gang.demand)
        self.quotas.take(gang)
