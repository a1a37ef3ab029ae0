"""Pods and rules that come and go: what is kept of them is what one that reads all anew sees."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Key
from bireme.core.pod_constraints import PodKind
from bireme.kube import wire
from bireme.kube.pod_rules import PodRules, demands_of_spec
from testbed.objects.facts import through_the_wire

SELECTORS: tuple[dict[str, Any], ...] = (
    {"matchLabels": {"app": "a"}},
    {"matchLabels": {"app": "b"}},
    {"matchLabels": {"app": "a", "tier": "x"}},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]},
)
LABELS: tuple[dict[str, str], ...] = (
    {},
    {"app": "a"},
    {"app": "b"},
    {"app": "a", "tier": "x"},
    {"tier": "y", "more": "z"},
)


def spec_with(selector: dict[str, Any] | None, spaces: bool = False) -> dict[str, Any]:
    if selector is None:
        return {}
    term = {"topologyKey": "rack", "labelSelector": selector}
    if spaces:
        term["namespaceSelector"] = {"matchLabels": {"team": "a"}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": required}}


# Mostly selectors of one value of a label that others ask for too, in the pod's own namespace.
SPECS = st.sampled_from(
    (
        *(spec_with(selector) for selector in (None, *SELECTORS[:2], *SELECTORS)),
        spec_with(SELECTORS[0], spaces=True),
    )
)
NOTHING: st.SearchStrategy[dict[str, Any]] = st.just({})
STEPS = st.one_of(
    st.tuples(st.just("pod"), st.integers(0, 4), st.sampled_from(LABELS), st.just({}) | SPECS),
    st.tuples(st.just("gone"), st.integers(0, 4), NOTHING, NOTHING),
    *(st.tuples(st.just("job"), st.integers(0, 2), NOTHING, SPECS) for _ in range(3)),
    st.tuples(st.just("space"), st.integers(0, 1), NOTHING, NOTHING),
)


@given(st.lists(STEPS, min_size=20, max_size=30))
def test_what_is_seen_of_pods_follows_from_the_pods_and_rules_there_are(
    steps: list[tuple[str, int, dict[str, str], dict[str, Any]]],
) -> None:
    spaces = {"team": "b"}
    rules = PodRules(lambda _: dict(spaces))
    pods: dict[Key, wire.V1Pod] = {}
    jobs: dict[Key, PodKind | None] = {}
    # What a gang with such labels was seen as, and when.
    known: dict[int, tuple[tuple[int, ...], PodKind | None]] = {}
    for what, number, labels, spec in steps:
        key = ("default", f"{what}-{number}")
        if what == "pod":
            meta = {"name": key[1], "namespace": "default", "labels": labels}
            pods[key] = through_the_wire({"metadata": meta, "spec": spec, "status": {}}, wire.V1Pod)
            rules.put_pod(key, "default", pods[key], labels)
        elif what == "gone":
            pods.pop(("default", f"pod-{number}"), None)
            rules.delete_pod(("default", f"pod-{number}"))
        elif what == "job":
            jobs[key] = demands_of_spec(through_the_wire(spec, wire.V1PodSpec), "default", {})
            rules.put_job(key, [jobs[key]])
        else:
            spaces["team"] = "ab"[number]
            rules.namespaces_changed()
        fresh = PodRules(lambda _: dict(spaces))
        for other, pod in pods.items():
            fresh.put_pod(other, "default", pod, pod.metadata.labels or {})
        for other, demands in jobs.items():
            fresh.put_job(other, [demands])
        assert dict(rules.pods()) == dict(fresh.pods())
        for at, of_gang in enumerate(LABELS):
            revision = rules.revision_of(of_gang.items())
            seen = fresh.kind_of("default", of_gang, None)
            if at in known and known[at][0] == revision:
                assert known[at][1] == seen
            known[at] = revision, seen
    # Labels of jobs are without end: what is gone is forgotten.
    for key in pods:
        rules.delete_pod(key)
    for key in jobs:
        rules.put_job(key, [])
    assert not any((rules._by_pair, rules._pods_by_label, rules._revision_by_pair))
