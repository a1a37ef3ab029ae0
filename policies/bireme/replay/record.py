"""The format of a record: JSON objects, one to a line, in UTF-8.

The first line of every file is a :class:`Header`, each one below a :class:`Line`: one cycle, what
has changed since the line before, and what was decided. The first line below the header states
everything, so that every file can be read alone. Gangs go by uid and nodes by name, never by row.

The operator imports this module to record; it imports nothing of the simulator.
"""

from typing import Final, TypeAlias

import msgspec

from bireme.core.errors import BiremeError
from bireme.core.finished_runs import FinishedRun
from bireme.core.gangs import Gang, PodKind
from bireme.core.nodes import GrowablePool, Node
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
        number: Of the file, 1 higher than that of the file before it.
        settings: What every decision depends on besides the cluster; they name the policy.
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
        is_starting: Not all of its replicas have run yet; False in records of earlier versions.
        is_opportunistic: It yields to the gang in whose reserved places it started; as above.
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
        stops: The beneficiary by gang that makes room; empty for the maintenance of nodes.
        holds: The reason by gang that is left waiting.
        fallback: Why the policy's own order was not used; empty when it was.
        growth: The nodes to ask for by gang and pool; 0 where those that come are enough.
        digest: Hash of the whole decision, with what is not listed here (the order, the places
            kept for blocked gangs): equal decisions have equal digests.
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
    """One cycle. What is left out is as in the line before; None stands for what is gone.

    Attributes:
        line: Its number in the file, the header's being 1.
        now: POSIX seconds.
        outline: The decision; of ``holds`` only those that are new or have another reason.
        lost: Cycles before it that could not be recorded.
        source: Whose policy decided; that of the settings until a line names one.
        used: By node, in the order of the resources the nodes offer (standard ones first). A node
            that is new uses nothing, and all do when other resources are offered than before.
        waiting, running: By gang.
        growable: By pool.
        occupants: All of them, where they differ from the line before.
        quotas: By namespace and name, with a slash between them.
        finished: Runs that have ended since the line before, oldest first; none in records of
            earlier versions.
        service: Of all submitters, whatever the line before says; none in records of earlier
            versions.
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
    """A record cannot be written or read; the text names what is wrong, where, and the remedy."""
