"""The chart's admission policies, on requests that they admit and refuse, without a cluster.

They are those of the golden rendering. The real API server judges the same kinds of requests in
``tests/cluster/test_enforcement.py``, and the types of all expressions.
"""

from collections.abc import Mapping
from typing import Any, Final

import pytest
import yaml

from testbed.admission import Policy, Request, policies, refusals
from testbed.scenario.manifests import PLAN_GATE, Manifest, pod, training_job
from tools.docs.reference.schema import PATH

OPERATOR: Final = "system:serviceaccount:bireme-system:bireme-operator"
GATED: Final = [{"name": PLAN_GATE}]
QUEUE: Final = "bireme.dev/queue"
DEFAULT_QUEUE: Final = "bireme.dev/default-queue"


def labelled(made: Manifest, **labels: str) -> Manifest:
    named = {f"bireme.dev/{key.replace('_', '-')}": value for key, value in labels.items()}
    return {**made, "metadata": {**made["metadata"], "labels": named}}


def of_bireme(**spec: Any) -> Manifest:
    return pod("made", gpus=1, schedulerName="bireme", **spec)


def with_container(**fields: Any) -> Manifest:
    made = of_bireme()
    made["spec"]["containers"][0] |= fields
    return made


def namespace(queue: str = "") -> Manifest:
    labels = {DEFAULT_QUEUE: queue} if queue else {"team": "a"}
    return {"metadata": {"name": "team-a", "labels": labels}}


def binding(**labels: str) -> Manifest:
    return labelled({"metadata": {"name": "made"}, "target": {"name": "n0"}}, **labels)


def can(*rights: tuple[str, str, str]) -> Any:
    """Return an authorizer that allows verbs on resources of a name, "" for all of them."""

    def may(check: Mapping[str, str]) -> bool:
        asked = (check["check"], check["resource"])
        return any(
            (verb, resource) == asked and name in ("", check.get("name", ""))
            for verb, resource, name in rights
        )

    return may


def asked(operation: str, resource: str, user: str = "ann", **more: Any) -> Request:
    if user == OPERATOR:
        more.setdefault("may", can(("operate", "clusterclaims", "")))
    return Request(operation, resource, user, **more)


MEMBER: Final = labelled(of_bireme(schedulingGates=GATED), pod_group="crew")
PLANNED: Final = labelled(of_bireme(), pod_group="crew", queue="red")
USES_GOLD: Final = can(("use", "queues", "gold"))
THROUGH: Final = ("namespaces", "namespaces/status", "namespaces/finalize")

REFUSED: Final[dict[str, tuple[Request, str]]] = {
    "a pod of the scheduler without a gate": (
        asked("CREATE", "pods", object=of_bireme()),
        "places no pod that has no plan",
    ),
    "a pod of the scheduler with another's gate": (
        asked("CREATE", "pods", object=of_bireme(schedulingGates=[{"name": "a.b/c"}])),
        "places no pod that has no plan",
    ),
    "a gate lifted": (
        asked("UPDATE", "pods", object=labelled(of_bireme(), pod_group="crew"), old=MEMBER),
        "only the operator lifts",
    ),
    "a queue written on a pod": (
        asked("UPDATE", "pods", object=labelled(MEMBER, pod_group="crew", queue="x"), old=MEMBER),
        "only the operator writes the labels",
    ),
    "a queue written through status": (
        asked(
            "UPDATE",
            "pods/status",
            object=labelled(of_bireme(), pod_group="crew", queue="gold"),
            old=PLANNED,
        ),
        "only the operator writes the labels",
    ),
    "a pod that leaves its gang": (
        asked("UPDATE", "pods", object=labelled(of_bireme(), queue="red"), old=PLANNED),
        "the pod is of gang crew",
    ),
    "a queue written by a binding": (
        asked("CREATE", "pods/binding", object=binding(queue="gold")),
        "a binding does not write the labels",
    ),
    "a gang written by the older way to bind": (
        asked("CREATE", "bindings", object=binding(pod_group="other")),
        "a binding does not write the labels",
    ),
    **{
        f"a queue of the namespace through {resource}": (
            asked("UPDATE", resource, object=namespace("gold"), old=namespace()),
            "ann may not use queue gold",
        )
        for resource in THROUGH
    },
    **{
        f"the queue default of the namespace through {resource}": (
            asked("UPDATE", resource, object=namespace(), old=namespace("gold"), may=USES_GOLD),
            "ann may not use queue default",
        )
        for resource in THROUGH
    },
    "a job in a queue one may not use": (
        asked("CREATE", "trainingjobs", group="bireme.dev", object=training_job("j", queue="gold")),
        "ann may not use queue gold",
    ),
    "a status written by a tenant": (
        asked("UPDATE", "trainingjobs/status", group="bireme.dev", object={}, old={}),
        "is written by the operator alone",
    ),
}

ADMITTED: Final[dict[str, Request]] = {
    "a pod of another scheduler": asked("CREATE", "pods", object=pod("plain")),
    "a member that waits": asked("CREATE", "pods", object=MEMBER),
    "a member of a controller": asked(
        "CREATE", "pods", user="system:serviceaccount:kube-system:job-controller", object=MEMBER
    ),
    "a replica that the operator makes": asked("CREATE", "pods", OPERATOR, object=PLANNED),
    "a replica that an operator of another release makes": asked(
        "CREATE",
        "pods",
        "system:serviceaccount:other:operator",
        object=PLANNED,
        may=can(("operate", "clusterclaims", "")),
    ),
    "a gate that the operator lifts": asked(
        "UPDATE", "pods", OPERATOR, object=PLANNED, old=MEMBER, namespace="team-a"
    ),
    "a status of a planned pod": asked(
        "UPDATE", "pods/status", user="system:node:n0", object=PLANNED, old=PLANNED
    ),
    "a label of the tenant's own": asked(
        "UPDATE",
        "pods",
        object={**PLANNED, "metadata": {**PLANNED["metadata"], "annotations": {"a": "b"}}},
        old=PLANNED,
    ),
    "a binding of kube-scheduler": asked(
        "CREATE",
        "pods/binding",
        user="system:serviceaccount:bireme-system:bireme-scheduler",
        object={"metadata": {"name": "made"}, "target": {"name": "n0"}},
    ),
    "a binding with labels of a topology": asked(
        "CREATE",
        "pods/binding",
        object={"metadata": {"name": "made", "labels": {"topology.kubernetes.io/zone": "a"}}},
    ),
    **{
        f"a queue of the namespace that one may use through {resource}": asked(
            "UPDATE", resource, object=namespace("gold"), old=namespace(), may=USES_GOLD
        )
        for resource in THROUGH
    },
    **{
        f"another label of the namespace through {resource}": asked(
            "UPDATE", resource, object=namespace("gold"), old=namespace("gold")
        )
        for resource in THROUGH
    },
    "a namespace without a label": asked("CREATE", "namespaces", object=namespace()),
    "a job in a queue one may use": asked(
        "CREATE",
        "trainingjobs",
        group="bireme.dev",
        object=training_job("j", queue="gold"),
        may=USES_GOLD,
    ),
    "a status that the operator writes": asked(
        "UPDATE", "trainingjobs/status", OPERATOR, group="bireme.dev", object={}, old={}
    ),
}


@pytest.mark.parametrize("how", REFUSED)
def test_request_is_refused_with_words_that_say_why(how: str) -> None:
    request, words = REFUSED[how]
    messages = [each for found in refusals(request).values() for each in found]
    assert any(words in message for message in messages), messages


@pytest.mark.parametrize("how", ADMITTED)
def test_request_that_does_its_work_is_admitted(how: str) -> None:
    assert refusals(ADMITTED[how]) == {}


# --- the fence around the operator ----------------------------------------------------------------

PAST_BASELINE: Final[dict[str, tuple[Manifest, str]]] = {
    "host port": (with_container(ports=[{"containerPort": 1, "hostPort": 1}]), "hostPort"),
    "sysctl": (of_bireme(securityContext={"sysctls": [{"name": "kernel.msgmax"}]}), "sysctls"),
    "seccomp": (
        with_container(securityContext={"seccompProfile": {"type": "Unconfined"}}),
        "seccompProfile",
    ),
    "seccomp of the pod": (
        of_bireme(securityContext={"seccompProfile": {"type": "Unconfined"}}),
        "seccompProfile",
    ),
    "AppArmor": (
        with_container(securityContext={"appArmorProfile": {"type": "Unconfined"}}),
        "appArmorProfile",
    ),
    "SELinux": (
        of_bireme(securityContext={"seLinuxOptions": {"type": "spc_t"}}),
        "seLinuxOptions",
    ),
    "probe": (with_container(startupProbe={"tcpSocket": {"host": "h", "port": 1}}), "name a host"),
    "hook": (with_container(lifecycle={"postStart": {"httpGet": {"host": "h"}}}), "name a host"),
}


@pytest.mark.parametrize("how", PAST_BASELINE)
def test_operator_makes_pods_past_the_baseline_where_the_namespace_says_privileged_alone(
    how: str,
) -> None:
    manifest, words = PAST_BASELINE[how]
    made: dict[str, Any] = {
        "operation": "CREATE",
        "resource": "pods",
        "user": OPERATOR,
        "object": manifest,
    }
    found = refusals(asked(**made))
    assert list(found) == ["bireme-operator-pods"]
    assert words in found["bireme-operator-pods"][0]
    level = "pod-security.kubernetes.io/enforce"
    assert refusals(asked(**made, namespace_labels={level: "baseline"})) == found
    assert refusals(asked(**made, namespace_labels={level: "privileged"})) == {}


def test_operator_evicts_and_deletes_pods_of_its_scheduler_alone() -> None:
    ours, theirs = of_bireme(), pod("theirs", schedulerName="default-scheduler")
    there = (ours, theirs, labelled(pod("marked"), pod_group="crew"))

    def evicted(name: str, user: str = OPERATOR) -> dict[str, list[str]]:
        eviction = {"metadata": {"name": name}}
        return refusals(
            asked("CREATE", "pods/eviction", user, object=eviction, name=name, pods=there)
        )

    assert evicted("made") == evicted("marked") == evicted("gone") == {}
    assert list(evicted("theirs")) == ["bireme-operator-evictions"]
    assert evicted("theirs", "ann") == {}
    gone = refusals(asked("DELETE", "pods", OPERATOR, old=theirs))
    assert list(gone) == ["bireme-operator-pods"]
    assert refusals(asked("DELETE", "pods", OPERATOR, old=ours)) == {}


def owner_of_a_gang(resource: str, group: str = "crew") -> Manifest:
    made = labelled({"metadata": {}, "spec": {"containers": []}}, pod_group=group)
    job = {"parallelism": 2, "template": made}
    spec = job if resource == "jobs" else {"replicatedJobs": [{"template": {"spec": job}}]}
    meta = {"name": "theirs", "labels": {"team": "a"}, "ownerReferences": [{"name": "set"}]}
    return {"metadata": meta, "spec": spec}


def changed_by_the_operator(resource: str, old: Manifest, spec: Manifest, **meta: Any) -> list[str]:
    new = {
        "metadata": {k: v for k, v in {**old["metadata"], **meta}.items() if v is not None},
        "spec": {k: v for k, v in {**old["spec"], **spec}.items() if v is not None},
    }
    group = "batch" if resource == "jobs" else "jobset.x-k8s.io"
    found = refusals(asked("UPDATE", resource, OPERATOR, group=group, object=new, old=old))
    assert found.keys() <= {"bireme-operator-others"}
    return [message for messages in found.values() for message in messages]


@pytest.mark.parametrize("resource", ["jobs", "jobsets"])
def test_operator_suspends_owners_of_gangs_and_changes_nothing_else_of_them(resource: str) -> None:
    mark = "bireme.dev/suspended-for"
    ours = owner_of_a_gang(resource)
    labels = ours["metadata"]["labels"]

    def answer(spec: Manifest, **meta: Any) -> list[str]:
        return changed_by_the_operator(resource, ours, spec, **meta)

    assert answer({"suspend": True}, labels={**labels, mark: "crew"}) == []
    theirs = owner_of_a_gang(resource)
    part = theirs["spec"] if resource == "jobs" else theirs["spec"]["replicatedJobs"][0]
    template = part["template"] if resource == "jobs" else part["template"]["spec"]["template"]
    template["metadata"] = {}
    assert any(
        "owners of gangs alone" in words
        for words in changed_by_the_operator(resource, theirs, {"suspend": True})
    )
    theirs["metadata"]["labels"] = {**labels, mark: "crew"}
    lifted = changed_by_the_operator(resource, theirs, {"suspend": False}, labels=labels)
    assert lifted == [], "what was suspended is lifted"
    changes: tuple[Manifest, ...] = (
        {"parallelism": 0},
        {"parallelism": None} if resource == "jobs" else {"network": {}},
        *({name: 1} for name in ("completions", "activeDeadlineSeconds", "backoffLimit")),
        {"ttlSecondsAfterFinished": 0},
        {"managedBy": "x.y/z"},
    )
    for spec in changes:
        (words,) = answer(spec)
        assert "nothing in spec" in words, spec
    metas: tuple[Manifest, ...] = (
        {"ownerReferences": None},
        {"ownerReferences": [{"name": "x"}]},
        {"finalizers": ["x/y"]},
        {"annotations": {"x": "y"}},
        {"labels": {}},
        {"labels": {**labels, "kueue.x-k8s.io/queue-name": "q"}},
    )
    for meta in metas:
        (words,) = answer({"suspend": True}, **meta)
        assert "nothing in metadata" in words, meta


def test_operator_makes_no_pod_that_is_a_process_of_a_windows_host() -> None:
    host = {"windowsOptions": {"hostProcess": True}}
    for made in (of_bireme(securityContext=host), with_container(securityContext=host)):
        found = refusals(asked("CREATE", "pods", OPERATOR, object=made))
        assert "hostProcess" in str(found)


# --- tickets --------------------------------------------------------------------------------------

TICKETS: Final = Policy(
    "bireme-tickets", yaml.safe_load((PATH.parent / "files" / "ticket-policy.yaml").read_text()), {}
)


@pytest.mark.parametrize(
    ("spec", "is_true"),
    [
        ({"user": "ann", "groups": ["b", "a"], "extra": {"team": ["nlp"]}}, True),
        ({"user": "root", "groups": ["a", "b"], "extra": {"team": ["nlp"]}}, False),
        (
            {"user": "ann", "groups": ["a", "b", "system:masters"], "extra": {"team": ["nlp"]}},
            False,
        ),
        ({"user": "ann", "groups": ["a", "a"], "extra": {"team": ["nlp"]}}, False),
        ({"user": "ann", "groups": ["a"], "extra": {"team": ["nlp"]}}, False),
        ({"user": "ann", "groups": ["a", "b"]}, False),
        ({"user": "ann", "groups": ["a", "b"], "extra": {"team": ["nlp", "x"]}}, False),
        ({"user": "ann", "uid": "1", "groups": ["a", "b"], "extra": {"team": ["nlp"]}}, False),
    ],
)
def test_ticket_names_its_own_creator_and_nobody_else(spec: Manifest, is_true: bool) -> None:
    request = asked(
        "CREATE",
        "tickets",
        group="bireme.dev",
        object={"metadata": {"name": "mine"}, "spec": spec},
        groups=("a", "b"),
        extra={"team": ["nlp"]},
    )
    found = TICKETS.refusals(request)
    assert (found == []) == is_true
    assert all("a ticket names its own creator" in message for message in found)


def test_ticket_is_no_larger_and_lives_no_longer_for_its_metadata() -> None:
    def refusals_of(old: Manifest | None, user: str = "ann", **meta: Any) -> list[str]:
        ticket = {"metadata": {"name": "mine", **meta}, "spec": {"user": "ann"}}
        operation = "CREATE" if old is None else "UPDATE"
        return TICKETS.refusals(
            asked(operation, "tickets", user, group="bireme.dev", object=ticket, old=old, groups=())
        )

    held = {"metadata": {"name": "mine", "finalizers": ["foreground"]}, "spec": {"user": "ann"}}
    plain = {"metadata": {"name": "mine"}, "spec": {"user": "ann"}}
    extras: dict[str, Any] = {
        "annotations": {"x": "y"},
        "labels": {"x": "y"},
        "finalizers": ["x/y"],
        "ownerReferences": [{"name": "x"}],
    }
    for name, extra in extras.items():
        for old in (None, plain):
            (words,) = refusals_of(old, "ann", **{name: extra})
            assert "a ticket has no annotations" in words
    assert refusals_of(held, "the garbage collector") == []
    assert refusals_of({**plain, "spec": {"user": "eve"}}, "eve"), "a changed spec is as a new one"


def test_every_policy_of_the_chart_is_judged_here_or_says_where() -> None:
    elsewhere = {
        # Quantities, which this CEL does not have: tests/cluster/test_in_place_resizes.py.
        "bireme-resize",
        # Devices asked for: tests/cluster/test_enforcement.py has every way to ask.
        *("bireme-enforce", "bireme-enforce-bindings", "bireme-enforce-namespaces"),
    }
    here = {
        # Services: tests/cluster/test_enforcement.py.
        "bireme-operator-others",
        *("bireme-use", "bireme-use-by-default", "bireme-pods", "bireme-pods-bindings"),
        *("bireme-status", "bireme-operator-pods", "bireme-operator-evictions"),
    }
    assert policies().keys() == elsewhere | here
