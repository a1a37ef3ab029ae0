"""How the API server serves each kind: its names, its scope, its columns of ``kubectl get``."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from bireme.kube import names
from bireme.kube.api import NodePoolScaler, PodGroup, Queue, SchedulingPolicy, TrainingJob
from bireme.kube.api.metadata import Resource

Schema = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """A column of ``kubectl get``; ``wide`` ones appear with ``-o wide`` only."""

    name: str
    type: Literal["string", "integer", "number", "date"]
    path: str
    wide: bool = False

    def to_schema(self) -> Schema:
        """The entry of ``additionalPrinterColumns``."""
        priority = {"priority": 1} if self.wide else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **priority}


_REASON: Final = Column("REASON", "string", ".status.reason")
_AGE: Final = Column("AGE", "date", ".metadata.creationTimestamp")
_MESSAGE: Final = Column("MESSAGE", "string", ".status.message", wide=True)


def _condition_column(name: str, condition: str) -> Column:
    return Column(name, "string", f'.status.conditions[?(@.type=="{condition}")].status')


@dataclass(frozen=True)
class Kind:
    """How the API server serves a model."""

    model: type[Resource]
    scope: Literal["Namespaced", "Cluster"]
    columns: tuple[Column, ...]

    @property
    def plural(self) -> str:
        """What its objects are called in paths."""
        return names.PLURALS[self.model.__name__]

    @property
    def short_name(self) -> str:
        """What kubectl understands as well."""
        return names.SHORT_NAMES[self.model.__name__]


KINDS: Final = (
    Kind(
        TrainingJob,
        "Namespaced",
        (
            Column("PHASE", "string", ".status.phase"),
            Column("QUEUE", "string", ".spec.queue"),
            Column("PRIORITY", "number", ".status.priority.score"),
            Column("READY", "string", ".status.ready"),
            Column("GPUS", "integer", ".status.gpus"),
            Column("POSITION", "integer", ".status.queuePosition"),
            _REASON,
            Column("NODES", "integer", ".status.placement.nodes", wide=True),
            Column("RESTARTS", "integer", ".status.restarts", wide=True),
            Column("PROGRESS", "number", ".status.progress.percentage", wide=True),
            Column("LOSS", "number", ".status.progress.loss", wide=True),
            _MESSAGE,
            _AGE,
        ),
    ),
    Kind(
        PodGroup,
        "Namespaced",
        (
            Column("PHASE", "string", ".status.phase"),
            Column("QUEUE", "string", ".spec.queue"),
            Column("MINMEMBER", "integer", ".spec.minMember"),
            _REASON,
            _MESSAGE,
            _AGE,
        ),
    ),
    Kind(
        Queue,
        "Cluster",
        (
            Column("STATE", "string", ".spec.state"),
            Column("USERPRIORITY", "integer", ".spec.userPriority"),
            Column("ADMITTED", "integer", ".status.admitted"),
            Column("PENDING", "integer", ".status.pending"),
            _AGE,
        ),
    ),
    Kind(
        SchedulingPolicy,
        "Cluster",
        (
            Column("STAGE", "string", ".spec.stage"),
            Column("CHECKPOINT", "string", ".spec.checkpoint.name"),
            _condition_column("LOADED", "Loaded"),
            _condition_column("DEGRADED", "Degraded"),
            Column("DECISIONS", "integer", ".status.decisions"),
            Column("FALLBACKS", "integer", ".status.fallbacks"),
            Column("AGREEMENT", "number", ".status.shadow.agreement", wide=True),
            _AGE,
        ),
    ),
    Kind(
        NodePoolScaler,
        "Cluster",
        (
            Column("MODE", "string", ".spec.mode"),
            Column("NODES", "integer", ".status.nodes"),
            Column("FLOOR", "integer", ".status.floor"),
            Column("TOMORROW", "string", ".status.tomorrow"),
            Column("MODEL", "string", ".status.model.name"),
            Column("SKILL", "number", ".status.model.skill"),
            Column("WHY", "string", ".status.why"),
            Column("MAX", "integer", ".spec.max", wide=True),
            Column("REPLICAS", "integer", ".status.replicas", wide=True),
            Column("NEEDED", "integer", ".status.needed", wide=True),
            _AGE,
        ),
    ),
)
