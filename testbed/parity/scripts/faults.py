"""Faults that users write, by kind: one edit of a good manifest each."""

from collections.abc import Mapping
from typing import Final

from testbed.parity.scripts.edits import DROP, Edit, Values, table
from testbed.scenario.manifests import pod_spec, task

_LONG: Final = "a" * 64
_OPERATORS: Final = [
    {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]},
    {"matchExpressions": [{"key": "a", "operator": "In"}]},
    {"matchLabels": {"a": 1}},
]
_OF_ALL: Final[Values] = {
    "metadata/name": ["Bad_Name", "1st", "a.b", "-a", "a" * 260, "", 7, DROP],
    "metadata/namespace": ["elsewhere"],
    "metadata/labels": [{"a": "b c"}, {"a": _LONG}, {"bad key": "a"}, {"a": 1}, ["a"]],
    "metadata/annotations": [{"a": 1}, {"bad key": "a"}, {"a": None}],
    "metadata/resourceVersion": ["5"],
    "metadata/uid": ["5"],
    "metadata/finalizers": [["bad finalizer"], ["example.com/hold me"], "a"],
    "metadata/ownerReferences": [[{"kind": "Job", "name": "a"}], [{}]],
    "metadata/color": ["red"],
    "kind": ["", 5],
    "apiVersion": ["v7", ""],
    "spec": ["none", [], 5],
}
_TRAINING_JOB: Final[Values] = {
    "spec": [None, DROP, {}],
    "spec/tasks": [DROP, [], "one", {"worker": 1}, [None], [task(), task()], [task()] * 17],
    "spec/tasks/1": [task("lead", role="master"), task("show", role="evaluator")],
    "spec/tasks/0/replicas": ["two", 0, -1, 10**9, 10**20, 1.5, None, DROP, True],
    "spec/tasks/0/minReplicas": [9, 0, "1"],
    "spec/tasks/0/maxReplicas": [1, 20_000],
    "spec/tasks/0/name": ["Worker!", _LONG, "", 3, DROP, "9a"],
    "spec/tasks/0/role": ["boss", DROP, "evaluator", "ps", ["worker"]],
    "spec/tasks/0/priority": [1001, -1],
    "spec/tasks/0/template": [DROP, {}, "none"],
    "spec/tasks/0/template/spec": [pod_spec(containers=[]), {}, "none", []],
    "spec/tasks/0/template/spec/containers/0/name": ["Bad_Name", DROP, ""],
    "spec/tasks/0/template/spec/containers/0/image": [DROP, 5],
    "spec/tasks/0/template/spec/containers/0/resources": [
        {"limits": {"cpu": "many"}},
        {"limits": {"cpu": True}},
        {"limits": {"nvidia.com/gpu": "0.5"}},
        {"limits": "none"},
        {"requests": {"memory": "-1Gi"}},
    ],
    "spec/tasks/0/template/spec/restartPolicy": ["Always", "Sometimes"],
    "spec/tasks/0/template/metadata": [{"labels": {"a": "b c"}}, {"labels": 5}, {"name": "x"}],
    "spec/tasks/0/color": ["red"],
    "spec/color": ["red"],
    "spec/minAvailable": [99, 0, "1"],
    "spec/rendezvous": ["mpi", "", None],
    "spec/roleAffinity": [{"mode": "Required"}, {"mode": "Always"}, {"topologyKey": "a b"}, {}],
    "spec/queue": ["Bad_Queue", _LONG, "", 5, "nowhere"],
    "spec/priorityClassName": ["nobody", "Bad!", 5],
    "spec/estimatedDuration": ["soon", 5, "-1h", "1h30m", "2d"],
    "spec/runPolicy": [None, [], {"color": "red"}],
    "spec/runPolicy/backoffLimit": [-1, 101, "3", 1.5],
    "spec/runPolicy/cleanPodPolicy": ["Sometimes"],
    "spec/runPolicy/suspend": ["yes", 1],
    "spec/runPolicy/activeDeadlineSeconds": [0, 2**31],
    "status": [{"phase": "Running"}, {"phase": "Flying"}, {"color": "red"}],
}
_QUEUE: Final[Values] = {
    "spec/weight": [0, 1001, "heavy", 1.5],
    "spec/guaranteed": [{"nvidia.com/gpu": "99"}, {"cpu": "-1"}, {"cpu": "many"}, "all"],
    "spec/limit": [{"nvidia.com/gpu": "x"}, {"": "1"}, []],
    "spec/userPriority": [101, -1, "high"],
    "spec/state": ["Half", ""],
    "spec/namespaceSelector": _OPERATORS,
    "spec/waitBoundSeconds": [0, 2**31],
    "spec/parent": ["Bad_Queue", ""],
    "spec/color": ["red"],
}
_POD_GROUP: Final[Values] = {
    "spec/minMember": [DROP, 0, "two", 20_000],
    "spec/minTaskMember": [{"a": 9}, {"a b": 1}, {"a": 0}],
    "spec/minResources": [{"cpu": "many"}],
    "spec/queue": ["Bad_Queue"],
    "spec/color": ["red"],
}
_CONTAINER: Final = "containers/0"
_POD_SPEC: Final[Values] = {
    "containers": [DROP, [], "one", [{}], [{"name": "a"}], pod_spec()["containers"] * 2],
    f"{_CONTAINER}/name": ["Bad_Name", "", _LONG, 5],
    f"{_CONTAINER}/image": [DROP, "", 5, " spaced "],
    f"{_CONTAINER}/imagePullPolicy": ["Sometimes"],
    f"{_CONTAINER}/env": [[{"name": ""}], [{"name": "1=2"}], {"A": "b"}, [{"value": "a"}]],
    f"{_CONTAINER}/ports": [[{"containerPort": 0}], [{"containerPort": 70000}], [{}]],
    f"{_CONTAINER}/volumeMounts": [[{"name": "data", "mountPath": "/data"}]],
    f"{_CONTAINER}/command": ["run", [1]],
    f"{_CONTAINER}/color": ["red"],
    f"{_CONTAINER}/resources": [
        {"limits": {"cpu": "many"}},
        {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
        {"requests": {"nvidia.com/gpu": "1"}},
        {"limits": {"nvidia.com/gpu": "0.5"}},
        {"requests": {"memory": "-1Gi"}},
        {"requests": {"gold": "1"}},
    ],
    "restartPolicy": ["Sometimes", 5],
    "dnsPolicy": ["None", "Sometimes"],
    "priorityClassName": ["nobody"],
    "priority": [5],
    "nodeSelector": [{"a": "b c"}, ["a"]],
    "tolerations": [[{"operator": "Like"}], [{"key": "a", "operator": "Exists", "value": "b"}]],
    "volumes": [[{"name": "a"}], [{"name": "Bad_Name", "emptyDir": {}}]],
    "activeDeadlineSeconds": [0, -1, "5"],
    "terminationGracePeriodSeconds": [-1],
    "hostNetwork": ["yes"],
    "schedulingGates": [[{"name": ""}], [{"name": "a"}, {"name": "a"}], [{"name": "Bad Gate"}]],
    "schedulerName": [""],
    "serviceAccountName": ["nobody"],
    "color": ["red"],
}
_POD: Final[Values] = {
    "spec": [DROP, None, {}],
    **{f"spec/{place}": values for place, values in _POD_SPEC.items()},
}
_JOB: Final[Values] = {
    "spec/parallelism": [-1, "two"],
    "spec/completions": [-1],
    "spec/backoffLimit": [-1, 1.5],
    "spec/completionMode": ["Sometimes", "Indexed"],
    "spec/activeDeadlineSeconds": [-1],
    "spec/ttlSecondsAfterFinished": [-1],
    "spec/selector": [{"matchLabels": {"a": "b"}}],
    "spec/template": [DROP, {}],
    "spec/template/spec/restartPolicy": [DROP, "Always"],
    "spec/suspend": ["yes"],
    "spec/color": ["red"],
    **{f"spec/template/spec/{place}": values for place, values in _POD_SPEC.items()},
}
_PRIORITY_CLASS: Final[Values] = {
    "value": [DROP, 2_000_000_000, "high", 1.5, 2**40],
    "preemptionPolicy": ["Sometimes"],
    "color": ["red"],
    "metadata/name": ["system-mine", "Bad_Name"],
}
FAULTS: Final[Mapping[str, tuple[Edit, ...]]] = {
    kind: table(_OF_ALL) + table(of_kind)
    for kind, of_kind in (
        ("TrainingJob", _TRAINING_JOB),
        ("Queue", _QUEUE),
        ("PodGroup", _POD_GROUP),
        ("Pod", _POD),
        ("Job", _JOB),
        ("PriorityClass", _PRIORITY_CLASS),
    )
}
"""By kind, edits of which most make a manifest that the API server refuses."""
BODIES: Final = ("", "{", "[]", "null", '"text"', "5", '{"kind": "List", "items": []}', "a: b")
"""Texts in place of an object."""
