"""Preferences of pods (soft affinity and spread), and nodes that have the images of pods.

The weights of kube-scheduler's score plugins make the preferences of different plugins comparable.
"""

from collections.abc import Iterable, Mapping
from sys import intern
from typing import Final

from bireme.core.pod_constraints import (
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
from bireme.kube.pods import deduplicate, requirements


def of_spec(spec: wire.V1PodSpec, namespace: str, labels: Mapping[str, str]) -> Preferences:
    """Return the preferences of a pod of this spec.

    Raises:
        ValueError: an operator is unknown.
    """
    affinity, spread = spec.affinity, spec.topology_spread_constraints
    if affinity is None and not spread:
        return NO_PREFERENCES
    node_weight = PLUGIN_WEIGHTS["NodeAffinity"]
    affinity_terms, anti_affinity_terms = soft_terms(spec, namespace, labels)
    pod_weight, spread_weight = (
        PLUGIN_WEIGHTS["InterPodAffinity"],
        PLUGIN_WEIGHTS["PodTopologySpread"],
    )
    limits = soft_limits(spec, namespace, labels)
    preferences = Preferences(
        nodes=tuple(
            NodePreference(node_weight * weighted.weight, _term(weighted.preference))
            for weighted in _of_nodes(affinity)
        ),
        pods=(
            *(PodPreference(pod_weight * weight, near=term) for weight, term in affinity_terms),
            *(
                PodPreference(pod_weight * weight, apart=term)
                for weight, term in anti_affinity_terms
            ),
            *(PodPreference(spread_weight * MAX_WEIGHT, spread=limit) for limit in limits),
        ),
    )
    return deduplicate(preferences) if preferences != NO_PREFERENCES else NO_PREFERENCES


def _of_nodes(affinity: wire.V1Affinity | None) -> Iterable[wire.V1PreferredSchedulingTerm]:
    node_affinity = affinity.node_affinity if affinity is not None else None
    return (
        node_affinity.preferred_during_scheduling_ignored_during_execution
        if node_affinity
        else None
    ) or ()


def _term(term: wire.V1NodeSelectorTerm) -> SelectorTerm:
    return SelectorTerm(requirements(term.match_expressions), requirements(term.match_fields))


# --- images ---

_MAX_IMAGES: Final = 1024


class NodeImages:
    """The images in the status of nodes: the 50 largest of each node.

    As in kube-scheduler an image is identified by the name in the pod, with a tag.

    Attributes:
        revision: Number of changes of the nodes of queried images.
    """

    def __init__(self) -> None:
        self.revision = 0
        # Ten thousand nodes have nearly the same images: each name is stored once (``intern``).
        self._images_by_node: dict[str, tuple[str, ...]] = {}
        self._nodes_by_image: dict[str, set[str]] = {}

    def put(self, node: str, images: Iterable[wire.V1ContainerImage] | None) -> None:
        """Store the images of a node."""
        names = tuple(intern(name) for image in images or () for name in image.names or ())
        if names == self._images_by_node.get(node, ()):
            return
        self._images_by_node[node] = names
        name_set = set(names) if self._nodes_by_image else ()
        for image, nodes in self._nodes_by_image.items():
            if (image in name_set) != (node in nodes):
                nodes.symmetric_difference_update((node,))
                self.revision += 1

    def delete(self, node: str) -> None:
        """Forget a node."""
        self.put(node, ())
        self._images_by_node.pop(node, None)

    def preference(self, images: Iterable[str]) -> NodePreference | None:
        """Return the preference for nodes that have all ``images``; None without such nodes."""
        node_sets = [self._nodes_with(image) for image in images]
        nodes = sorted(set.intersection(*node_sets)) if node_sets else []
        if not nodes:
            return None
        requirement = Requirement("metadata.name", SelectorOperator.IN, tuple(nodes))
        weight = PLUGIN_WEIGHTS["ImageLocality"] * MAX_WEIGHT
        return NodePreference(weight, SelectorTerm(names=(requirement,)))

    def _nodes_with(self, image: str) -> set[str]:
        if image.rfind(":") <= image.rfind("/"):
            image += ":latest"
        cached = self._nodes_by_image.get(image)
        if cached is None:
            if len(self._nodes_by_image) >= _MAX_IMAGES:
                del self._nodes_by_image[next(iter(self._nodes_by_image))]  # the oldest
            cached = {node for node, names in self._images_by_node.items() if image in names}
            self._nodes_by_image[image] = cached
        return cached
