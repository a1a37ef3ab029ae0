"""What pods would rather have, as Kubernetes writes it, and nodes that have the images of pods.

The weights of kube-scheduler's score plugins order what different plugins look at.
"""

from collections.abc import Iterable, Mapping
from sys import intern
from typing import Final

from bireme.core.gangs import (
    MAX_WEIGHT,
    NO_PREFERENCES,
    PLUGIN_WEIGHTS,
    NodePreference,
    PodPreference,
    Preferences,
    Requirement,
    SelectorOperator,
    SelectorTerm,
)
from bireme.kube import wire
from bireme.kube.pod_rules import soft_limits, soft_terms
from bireme.kube.pods import requirements, shared


def of_spec(spec: wire.V1PodSpec, namespace: str, labels: Mapping[str, str]) -> Preferences:
    """Return what a pod of this spec would rather have.

    Raises:
        ValueError: an operator is unknown.
    """
    affinity, spread = spec.affinity, spec.topology_spread_constraints
    if affinity is None and not spread:
        return NO_PREFERENCES
    of_node = PLUGIN_WEIGHTS["NodeAffinity"]
    near, apart = soft_terms(spec, namespace, labels)
    to_pods, evenly = PLUGIN_WEIGHTS["InterPodAffinity"], PLUGIN_WEIGHTS["PodTopologySpread"]
    limits = soft_limits(spec, namespace, labels)
    found = Preferences(
        nodes=tuple(
            NodePreference(of_node * each.weight, _term(each.preference))
            for each in _of_nodes(affinity)
        ),
        pods=(
            *(PodPreference(to_pods * weight, near=term) for weight, term in near),
            *(PodPreference(to_pods * weight, apart=term) for weight, term in apart),
            *(PodPreference(evenly * MAX_WEIGHT, spread=limit) for limit in limits),
        ),
    )
    return shared(found) if found != NO_PREFERENCES else NO_PREFERENCES


def _of_nodes(affinity: wire.V1Affinity | None) -> Iterable[wire.V1PreferredSchedulingTerm]:
    given = affinity.node_affinity if affinity is not None else None
    return (given.preferred_during_scheduling_ignored_during_execution if given else None) or ()


def _term(given: wire.V1NodeSelectorTerm) -> SelectorTerm:
    return SelectorTerm(requirements(given.match_expressions), requirements(given.match_fields))


# --- images ---

_MAX_WANTED: Final = 1024


class NodeImages:
    """The images that nodes say they have: the 50 largest of each.

    As in kube-scheduler an image is known by the very name that the pod gives it, with a tag.

    Attributes:
        revision: Number of changes to which nodes have an image that was asked for.
    """

    def __init__(self) -> None:
        self.revision = 0
        # Ten thousand nodes have much the same images, so that each name is kept once.
        self._on: dict[str, tuple[str, ...]] = {}
        self._wanted: dict[str, set[str]] = {}

    def put(self, node: str, images: Iterable[wire.V1ContainerImage] | None) -> None:
        """Take in the images of a node."""
        names = tuple(intern(name) for image in images or () for name in image.names or ())
        if names == self._on.get(node, ()):
            return
        self._on[node] = names
        there = set(names) if self._wanted else ()
        for image, nodes in self._wanted.items():
            if (image in there) != (node in nodes):
                nodes.symmetric_difference_update((node,))
                self.revision += 1

    def delete(self, node: str) -> None:
        """Forget a node."""
        self.put(node, ())
        self._on.pop(node, None)

    def preference(self, images: Iterable[str]) -> NodePreference | None:
        """Return the preference for nodes that have all ``images``; None if there are none."""
        found = [self._nodes_with(image) for image in images]
        nodes = sorted(set.intersection(*found)) if found else []
        if not nodes:
            return None
        there = Requirement("metadata.name", SelectorOperator.IN, tuple(nodes))
        weight = PLUGIN_WEIGHTS["ImageLocality"] * MAX_WEIGHT
        return NodePreference(weight, SelectorTerm(names=(there,)))

    def _nodes_with(self, image: str) -> set[str]:
        if image.rfind(":") <= image.rfind("/"):
            image += ":latest"
        known = self._wanted.get(image)
        if known is None:
            if len(self._wanted) >= _MAX_WANTED:
                del self._wanted[next(iter(self._wanted))]  # the oldest
            known = {node for node, names in self._on.items() if image in names}
            self._wanted[image] = known
        return known
