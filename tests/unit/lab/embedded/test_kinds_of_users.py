"""Custom kinds, rights, policies and bodies in protobuf."""

from bireme.kube import crd
from bireme_lab.embedded.api import durations, kinds, protobuf
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.requests import ApiUser
from tests.unit.lab.embedded.requests import PODS, a_pod, an_api, ask, done

QUEUES = "/apis/bireme.dev/v1alpha1/queues"
JOBS = "/apis/bireme.dev/v1alpha1/namespaces/default/trainingjobs"
ANN = ApiUser("ann")


def define_all(api: object) -> None:
    for kind in crd.KINDS:
        done(api, "POST", kinds.DEFINITIONS, crd.definition(kind))  # type: ignore[arg-type]


def a_job(**task: object) -> Object:
    template = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
    tasks = [{"name": "worker", "role": "worker", "replicas": 1, "template": template, **task}]
    head = {"apiVersion": "bireme.dev/v1alpha1", "kind": "TrainingJob"}
    return {**head, "metadata": {"name": "j"}, "spec": {"tasks": tasks}}


def test_a_definition_serves_its_kind_while_it_exists() -> None:
    api = an_api()
    assert ask(api, "GET", QUEUES).code == 404
    define_all(api)
    job = done(api, "POST", JOBS, a_job())
    assert job["spec"]["runPolicy"]["backoffLimit"] == 3
    head = {"apiVersion": "bireme.dev/v1alpha1", "kind": "Queue"}
    done(api, "POST", QUEUES, {**head, "metadata": {"name": "q"}, "spec": {}})
    done(api, "DELETE", f"{kinds.DEFINITIONS}/queues.bireme.dev")
    assert ask(api, "GET", QUEUES).code == 404
    (definition,) = (crd.definition(kind) for kind in crd.KINDS if kind.plural == "queues")
    done(api, "POST", kinds.DEFINITIONS, definition)
    assert done(api, "GET", QUEUES)["items"] == []


def test_schema_and_rules_of_a_kind_refuse_in_the_words_of_the_server() -> None:
    api = an_api()
    define_all(api)
    typed = ask(api, "POST", JOBS, a_job(replicas="two"))
    assert typed.body["message"] == (
        'TrainingJob.bireme.dev "j" is invalid: [spec.tasks[0].replicas: Invalid value: "string": '
        'spec.tasks[0].replicas in body must be of type integer: "string", <nil>: Invalid value: '
        "null: some validation rules were not checked because the object was invalid; correct the "
        "existing errors to complete validation]"
    )
    ruled = ask(api, "POST", JOBS, a_job(replicas=2, minReplicas=3))
    assert ruled.code == 422
    assert ruled.body["message"] == (
        'TrainingJob.bireme.dev "j" is invalid: spec.tasks[0]: Invalid value: minReplicas 3 is '
        "above replicas 2: lower minReplicas or raise replicas"
    )


def test_rights_come_from_roles_and_bindings() -> None:
    api = an_api()
    assert ask(api, "GET", PODS, user=ANN).body["message"] == (
        'pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the '
        'namespace "default"'
    )
    binding = {
        "metadata": {"name": "b"},
        "subjects": [{"kind": "User", "name": "ann"}],
        "roleRef": {"kind": "ClusterRole", "name": "view"},
    }
    bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    done(api, "POST", bindings, binding)
    done(api, "GET", PODS, user=ANN)
    assert ask(api, "POST", PODS, a_pod(), user=ANN).code == 403
    assert ask(api, "GET", "/api/v1/pods", user=ANN).code == 403


def test_every_user_may_review_their_own_rights() -> None:
    api = an_api()
    user = ApiUser("ann", ("system:authenticated",))
    prefix = "/apis/authorization.k8s.io/v1"
    attributes = {"verb": "list", "resource": "pods", "namespace": "default"}
    review = {"spec": {"resourceAttributes": attributes}}
    answer = ask(api, "POST", f"{prefix}/selfsubjectaccessreviews", review, user=user)
    assert (answer.code, answer.body["status"]["allowed"]) == (201, False)
    answer = ask(
        api,
        "POST",
        f"{prefix}/selfsubjectrulesreviews",
        {"spec": {"namespace": "default"}},
        user=user,
    )
    resources = [
        name for rule in answer.body["status"]["resourceRules"] for name in rule["resources"]
    ]
    assert "selfsubjectrulesreviews" in resources
    assert "pods" not in resources


def test_a_policy_denies_what_its_binding_is_about() -> None:
    api = an_api()
    prefix = "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    policy = {
        "metadata": {"name": "team"},
        "spec": {
            "matchConstraints": {"resourceRules": [{**rule, "resources": ["pods"]}]},
            "validations": [
                {"expression": "has(object.metadata.labels)", "message": "label it, please"}
            ],
        },
    }
    done(
        api,
        "POST",
        f"{prefix}/validatingadmissionpolicies",
        {**policy, "kind": "ValidatingAdmissionPolicy"},
    )
    done(api, "POST", PODS, a_pod("free"))
    bound = {
        "metadata": {"name": "team"},
        "spec": {"policyName": "team", "validationActions": ["Deny"]},
    }
    done(api, "POST", f"{prefix}/validatingadmissionpolicybindings", bound)
    assert ask(api, "POST", PODS, a_pod()).body["message"] == (
        "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'team' with binding 'team' denied "
        "request: label it, please"
    )


def test_an_object_in_protobuf_is_read_as_in_json() -> None:
    # As `kubectl create namespace a` sends it: envelope with type and raw object.
    of_type = bytes([0x0A, 2]) + b"v1" + bytes([0x12, 9]) + b"Namespace"
    meta = bytes([0x0A, 1]) + b"a" + bytes([0x12, 0])
    raw = bytes([0x0A, len(meta)]) + meta + bytes([0x12, 0])
    envelope = bytes([0x0A, len(of_type)]) + of_type + bytes([0x12, len(raw)]) + raw
    found = protobuf.decode(b"k8s\x00" + envelope)
    assert found == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "a"},
        "spec": {},
    }


def test_durations_read_as_kubectl_prints_them() -> None:
    seconds = (5, 119, 125, 600, 3 * 3600, 9 * 3600, 50 * 3600, 10 * 86400)
    shown = [durations.human_duration(each) for each in seconds]
    assert shown == ["5s", "119s", "2m5s", "10m", "3h", "9h", "2d2h", "10d"]
