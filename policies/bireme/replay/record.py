"""The format of a record: JSON objects, one to a line, in UTF-8.

The first line of every file is a :class:`Header`. Each further :class:`Line` is one cycle: the
changes since the line before, and the decision. The first line below the header states everything,
so that every file can be read alone. Gangs are named by uid and nodes by name, never by row.

The operator imports this module to record; it imports nothing of the simulator.
"""

from typing import Final, TypeAlias

import msgspec

from bireme.core.errors import BiremeError
from bireme.core.finished_runs import FinishedRun
from bireme.core.gangs import Gang
from bireme.core.nodes import GrowablePool, Node
from bireme.core.pod_constraints import PodKind
from bireme.core.queues import Queue
from bireme.core.quotas import Quota
from bireme.core.settings import SchedulingSettings
from bireme.rl.lookup import PolicySource

FORMAT: Final = "bireme-record"
VERSION: Final = 1

Places: TypeAlias = dict[str, dict[str, int]]
"""Replicas by task name and node name."""


class Header(msgspec.Struct, frozen=True):
    """Origin of a file.

    Attributes:
        bireme: The version that wrote it.
        run: The operator's term of leadership; each starts with an empty memory.
        number: Number of the file, 1 higher than that of the file before it.
        settings: The settings of every decision; they name the policy.
    """

    format: str
    version: int
    bireme: str
    run: str
    number: int
    settings: SchedulingSettings


class RecordedGang(msgspec.Struct, frozen=True, omit_defaults=True):
    """A gang that holds places (:class:`bireme.core.running.RunningGang`).

    Attributes:
        resized: POSIX seconds; None for never.
        anchor: Name of the node that a shrink empties last; empty for none.
        is_starting: Whether some of its replicas have not run yet; False in older records.
        is_opportunistic: Whether it yields to the gang in whose reserved places it started; False
            in older records.
    """

    gang: Gang
    places: Places
    started: float
    resized: float | None = None
    is_leaving: bool = False
    anchor: str = ""
    kept_by_budget: bool = False
    is_starting: bool = False
    is_opportunistic: bool = False


class Outline(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision with gangs by uid and nodes by name.

    Attributes:
        starts, resizes: The places by gang.
        stops: The beneficiary by stopped gang; empty for the maintenance of nodes.
        holds: The reason by gang that waits on.
        fallback: The reason why the policy's own order was not used; empty if it was.
        growth: The nodes to request by gang and pool; 0 if the nodes under way are enough.
        digest: Hash of the whole decision, with the parts not listed here (the order, the places
            reserved for blocked gangs): equal decisions have equal digests.
    """

    digest: str
    starts: dict[str, Places] = {}
    resizes: dict[str, Places] = {}
    stops: dict[str, str] = {}
    holds: dict[str, str] = {}
    fallback: str = ""
    growth: dict[str, dict[str, int]] = {}


class RecordedPods(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pods of one kind and one gang on nodes (:class:`bireme.core.pod_rules.PodsOf`)."""

    kind: PodKind
    nodes: list[str]
    owner: str = ""
    are_fixed: bool = False
    are_leaving: bool = False


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cycle. An omitted entry is as in the line before; None removes it.

    Attributes:
        line: Number of the line in the file; the header is line 1.
        now: POSIX seconds.
        outline: The decision; ``holds`` has only entries that are new or have another reason.
        lost: Number of cycles before it that could not be recorded.
        source: The source of the deciding policy; until a line names one, that of the settings.
        used: Use by node, in the order of the offered resources (standard ones first). A new node
            uses nothing; if the offered resources change, all nodes begin at nothing.
        waiting, running: By gang.
        growable: By pool.
        occupants: All of them, if they differ from the line before.
        quotas: By namespace and name, with a slash between them.
        finished: Runs that have ended since the line before, oldest first; none in older records.
        service: Service of all submitters, whatever the line before says; none in older records.
    """

    line: int
    now: float
    outline: Outline
    lost: int = 0
    source: PolicySource | msgspec.UnsetType = msgspec.UNSET
    nodes: dict[str, Node | None] = {}
    used: dict[str, list[int]] = {}
    queues: dict[str, Queue | None] = {}
    queue_usage: dict[str, dict[str, int] | None] = {}
    waiting: dict[str, Gang | None] = {}
    running: dict[str, RecordedGang | None] = {}
    growable: dict[str, GrowablePool | None] = {}
    quotas: dict[str, Quota | None] = {}
    occupants: list[RecordedPods] | msgspec.UnsetType = msgspec.UNSET
    finished: list[FinishedRun] = []
    service: dict[str, float] = {}


class RecordError(BiremeError, ValueError):
    """A record cannot be written or read; the text names the fault, the place and the remedy."""
