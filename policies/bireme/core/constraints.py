"""What a pod template demands of a node: selector, required affinity, tolerated taints.

Only the hard parts of a template are here; they decide *whether* a node may be used. The types
are hashable, so that equal templates share one evaluation (:mod:`bireme.core.filters`).
"""

from dataclasses import dataclass
from enum import StrEnum


class Operator(StrEnum):
    """Operators of a node selector requirement, as the Kubernetes API spells them."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on a label (or, for a field requirement, on the node's name)."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """Requirements that must all hold. A term without any matches no node."""

    labels: tuple[Requirement, ...] = ()
    names: tuple[Requirement, ...] = ()
    """``matchFields`` on ``metadata.name``, the only field Kubernetes supports."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint that keeps pods away; ``PreferNoSchedule`` is not one and is not represented."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """Which taints a pod accepts. Empty ``key`` with Exists: all; empty ``effect``: any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """The API's own rule (``k8s.io/api/core/v1`` ``Toleration.ToleratesTaint``)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.operator == "Equal" and self.value == taint.value


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """The hard demands of one pod template."""

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity_terms: tuple[SelectorTerm, ...] | None = None
    """Required node affinity: at least one term must match; None when the pod has none."""
    tolerations: tuple[Toleration, ...] = ()


ANYWHERE = NodeConstraints()
"""No demand at all."""
