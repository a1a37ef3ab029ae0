"""Demands and preferences of a pod towards its node and towards other pods.

All are hashable, so that equal templates share one evaluation (:func:`bireme.core.nodes.feasible`).
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from bireme.core.resources import ATTACHABLE

# --- hard demands of a pod template on its node ---


class SelectorOperator(StrEnum):
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
    operator: SelectorOperator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """Requirements that must all hold. A term without any matches no node."""

    labels: tuple[Requirement, ...] = ()
    names: tuple[Requirement, ...] = ()
    """``matchFields`` on ``metadata.name``, the only field Kubernetes supports."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint that repels pods, or that pods only avoid if they can (``PreferNoSchedule``)."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """Taints a pod accepts. Empty ``key`` with Exists: all; empty ``effect``: any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Apply the API's own rule (``k8s.io/api/core/v1`` ``Toleration.ToleratesTaint``)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.operator == "Equal" and self.value == taint.value


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """Demands on the node by something that a pod needs: one of ``terms`` must match.

    ``source`` names that something in messages, as ``volume pv-1 of claim data``.
    """

    source: str
    terms: tuple[SelectorTerm, ...]


@dataclass(frozen=True, slots=True)
class NodePreference:
    """Nodes that a pod prefers; for ``weight`` see :class:`Preferences`."""

    weight: int
    term: SelectorTerm


@dataclass(frozen=True, slots=True)
class LeastScore:
    """Nodes of at least ``score`` by ``preferences`` (:func:`bireme.core.nodes.score`)."""

    preferences: tuple[NodePreference, ...]
    score: int


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """The hard demands of one pod template."""

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity_terms: tuple[SelectorTerm, ...] | None = None
    """Required node affinity: at least one term must match; None when the pod has none."""
    tolerations: tuple[Toleration, ...] = ()
    demands: tuple[NodeDemand, ...] = ()
    """Further demands, of volumes for instance; all of them must hold."""
    least: LeastScore | None = None
    """A preference that is tried as a demand; no template has it."""


ANYWHERE = NodeConstraints()
"""No demands."""


# --- hard demands of a pod on other pods ---
#
# Their effect on places is in bireme.core.pod_rules.

_ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # of a port, as kube-scheduler compares them


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port that a pod takes on its node."""

    number: int
    protocol: str = "TCP"
    address: str = _ANY_ADDRESS

    def clashes(self, other: "HostPort") -> bool:
        """Return whether one node cannot offer both."""
        if (self.number, self.protocol) != (other.number, other.protocol):
            return False
        return self.address == other.address or _ANY_ADDRESS in (self.address, other.address)


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Pods of some namespaces whose labels meet all requirements.

    ``namespaces`` None means all of them; ``spaces`` are requirements on the labels of further
    namespaces. No requirements match every pod; a requirement ``In`` without values matches none.
    """

    namespaces: tuple[str, ...] | None = None
    spaces: tuple[Requirement, ...] = ()
    requirements: tuple[Requirement, ...] = ()

    @property
    def pair(self) -> tuple[str, str] | None:
        """A label that every matching pod has; None if there is none."""
        for requirement in self.requirements:
            if requirement.operator is SelectorOperator.IN and len(requirement.values) == 1:
                return requirement.key, requirement.values[0]
        return None


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Pods in the same domain of the node label ``key``."""

    key: str
    pods: PodSelector


@dataclass(frozen=True, slots=True)
class SpreadLimit:
    """A hard topology spread: at most ``most_skew`` more of ``pods`` than in any other domain.

    The domains are those of the node label ``key``. With ``honors_affinity``, only nodes count that
    the pod's node selector and node affinity allow. With ``honors_taints``, only nodes count whose
    taints it tolerates. While there are fewer than ``least_domains``, an empty one counts as well.
    If it ``is_soft``, the placement rotates through the domains that have room.
    """

    key: str
    most_skew: int
    pods: PodSelector
    honors_taints: bool = False
    honors_affinity: bool = True
    least_domains: int = 1
    is_soft: bool = False


@dataclass(frozen=True)
class PodKind:
    """The view that rules over pods have of the pods of one template.

    Attributes:
        namespace, labels: The pod's; only labels used by a selector. With no namespace, no
            selector matches.
        space: Labels of its namespace, only those used by a selector.
        apart: Required anti-affinity: such pods and this pod exclude each other from a domain.
        near: Required affinity: such pods, each matching all terms, must be in every domain.
        spread: Hard topology spread.
        alone: Claims of volumes that only one pod of the cluster can use at a time.
        volumes: Volumes that a node attaches once for all its pods: the resource of the node that
            counts them, and the volume.
    """

    ports: tuple[HostPort, ...] = ()
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    space: tuple[tuple[str, str], ...] = ()
    apart: tuple[PodTerm, ...] = ()
    near: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadLimit, ...] = ()
    alone: tuple[tuple[str, str], ...] = ()
    volumes: tuple[tuple[str, str], ...] = ()

    @cached_property
    def _hash(self) -> int:
        identity = (self.namespace, self.labels, self.space)
        claims = (self.alone, self.volumes)
        return hash((self.ports, *identity, self.apart, self.near, self.spread, *claims))

    def __hash__(self) -> int:
        return self._hash

    @property
    def has_demands(self) -> bool:
        """True if it has demands on other pods; else only other pods have demands on it."""
        of_pods = self.ports or self.apart or self.near or self.spread
        return bool(of_pods or self.alone or self.volumes)

    @cached_property
    def selectors(self) -> tuple[PodSelector, ...]:
        """The other pods that its demands concern, each selector once."""
        terms = (term.pods for term in (*self.near, *self.apart))
        return tuple(dict.fromkeys((*terms, *(limit.pods for limit in self.spread))))

    @property
    def words(self) -> tuple[str, ...]:
        """Its demands on other pods."""
        numbers = sorted({port.number for port in self.ports})
        return (
            *((f"host port {', '.join(map(str, numbers))}",) if numbers else ()),
            *(f"required pod affinity on {term.key}" for term in self.near),
            *(f"required pod anti-affinity on {term.key}" for term in self.apart),
            *(f"topology spread over {limit.key}" for limit in self.spread),
            *(f"claim {name}, which one pod at a time can use" for _, name in self.alone),
            *(
                f"attached volumes of driver {name}"
                for name in dict.fromkeys(n.removeprefix(ATTACHABLE) for n, _ in self.volumes)
            ),
        )


# --- preferences of pods ---
#
# They choose among the places of a starting gang (bireme.core.preferences), and nothing else.

PLUGIN_WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "ImageLocality": 1,
}
"""Weights of kube-scheduler's score plugins in its default profile."""
MAX_WEIGHT = 100
"""The limit on a preference's own weight, and the weight of preferences without one."""


@dataclass(frozen=True, slots=True)
class PodPreference:
    """Other pods that a pod prefers to be near, apart from, or evenly spread with: one of these.

    For ``weight`` see :class:`Preferences`.
    """

    weight: int
    near: PodTerm | None = None
    apart: PodTerm | None = None
    spread: SpreadLimit | None = None


@dataclass(frozen=True, slots=True)
class Preferences:
    """The preferences of the pods of one template, beyond untainted nodes.

    A weight is the product of the weight of kube-scheduler's plugin and the preference's own.
    """

    nodes: tuple[NodePreference, ...] = ()
    pods: tuple[PodPreference, ...] = ()

    def with_node(self, more: NodePreference) -> "Preferences":
        """Return these preferences and one more."""
        return Preferences((*self.nodes, more), self.pods)


NO_PREFERENCES = Preferences()
