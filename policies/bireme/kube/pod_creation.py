"""Controllers that create the pods of a gang one after the other, and the remedies.

A gang waits until its pods exist, and such a controller waits until its existing pods are ready: a
deadlock. The operator may not read most of these controllers, so their integrations recognise them
by the labels and owners of their pods.
"""

from collections.abc import Iterable

from bireme.kube import wire
from bireme.kube.integrations import INTEGRATIONS


def remedy_of(pods: Iterable[wire.V1Pod]) -> str:
    """Return how to make the controllers of gated ``pods`` create all at once; empty if unknown.

    Each remedy names the condition under which it applies.
    """
    remedies = dict.fromkeys(map(_remedy, sorted(pods, key=lambda pod: pod.metadata.name)))
    return "; ".join(filter(None, remedies))


def _remedy(pod: wire.V1Pod) -> str:
    remedies = (integration.creation_remedy(pod) for integration in INTEGRATIONS)
    return next(filter(None, remedies), "")
