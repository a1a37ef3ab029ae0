"""Obstacles: reasons for which a gang cannot start, whatever becomes free.

An obstacle is a fault of the gang's configuration, or a demand beyond the empty cluster, the unused
queues or the unused quotas. No other gang waits for such a gang, and nothing is reserved for it.
"""

from bireme.core import messages
from bireme.core.decision import Hold
from bireme.core.gangs import Gang
from bireme.core.policy import Placer
from bireme.core.queue_tree import QueueTree
from bireme.core.queues import Queue
from bireme.core.quotas import QuotaLedger
from bireme.core.reasons import Reason
from bireme.core.scale_up import ScaleUp
from bireme.core.snapshot import ClusterSnapshot


def configuration_fault(gang: Gang, snapshot: ClusterSnapshot, queues: QueueTree) -> Hold | None:
    """Return a hold that no amount of waiting ends, or None."""
    if gang.fault is not None:
        # Before its pods exist, their total demand may already be too large.
        return Hold(gang, *(_never_fits_together(gang, snapshot, queues) or gang.fault))
    if flaw := gang.flaw:
        return Hold(gang, Reason.SPEC_INVALID, flaw)
    queue = snapshot.queues.get(gang.queue)
    if queue is None:
        return Hold(gang, Reason.QUEUE_NOT_FOUND, messages.no_queue(gang, snapshot))
    if fault := queues.fault(queue.name):
        return Hold(gang, Reason.QUEUE_INVALID, fault)
    if not queue.is_open:
        message = f"{messages.queue_of(gang)} is closed; use another one"
        return Hold(gang, Reason.QUEUE_CLOSED, message)
    if queue.namespaces is not None and gang.namespace not in queue.namespaces:
        return Hold(
            gang,
            Reason.QUEUE_FORBIDDEN,
            f"{messages.queue_of(gang)} does not admit namespace {gang.namespace!r}; "
            "use another queue or ask for the namespace to be selected",
        )
    return None


def start_obstacle(
    gang: Gang,
    snapshot: ClusterSnapshot,
    queues: QueueTree,
    placer: Placer,
    scale_up: ScaleUp | None = None,
) -> tuple[Reason, str] | None:
    """Return why ``gang`` would not start in an empty cluster and unused queues, or None."""
    if (beyond := queues.excess_when_empty(gang.queue, gang.demand)) is not None:
        return Reason.NEVER_FITS, messages.beyond_limit(*beyond)
    if gang.charges:
        over = QuotaLedger(snapshot.quotas).excess(gang, when_unused=True)
        if over is not None:
            return Reason.NEVER_FITS, messages.beyond_quota(*over)
    nodes = snapshot.nodes
    never = messages.never_fits(gang, nodes, placer)
    never = scale_up.never_fits(gang) if never and scale_up else never
    if never is None:
        return None
    if (later := messages.fits_later(gang, nodes, placer)) is not None:
        return Reason.NODES_NOT_READY, later
    return Reason.NEVER_FITS, never


def queue_obstacle(queue: Queue, queues: QueueTree) -> tuple[Reason, str] | None:
    """Return why no gang can start in ``queue``, with the remedy; None where some may."""
    if fault := queues.fault(queue.name):
        return Reason.QUEUE_INVALID, fault
    if not queue.is_open:
        return Reason.QUEUE_CLOSED, (
            "spec.state is Closed: no gang starts, and running gangs continue"
        )
    over = queues.overuse(queue.name)
    return (Reason.OVER_QUEUE_LIMIT, messages.above_limit(queue.name, *over)) if over else None


def _never_fits_together(
    gang: Gang, snapshot: ClusterSnapshot, queues: QueueTree
) -> tuple[Reason, str] | None:
    """Return why all pods of ``gang`` would never fit, if their total is declared; or None."""
    demand = dict(gang.foretold)
    beyond = queues.excess_when_empty(gang.queue, demand)
    text = messages.beyond_limit(*beyond) if beyond else messages.beyond_all_nodes(demand, snapshot)
    return (Reason.NEVER_FITS, f"minResources {text}") if text else None
