"""Changes of stored objects, by kind: edits as users make them, allowed or not."""

from collections.abc import Mapping
from typing import Any, Final

from testbed.parity.scripts.edits import DROP, Edit, Values, table

_OF_ALL: Final[Values] = {
    "metadata/labels": [{"team": "b"}, {"team": "a", "size": "big"}, {"team": "b c"}, {"team": 5}],
    "metadata/annotations": [{"note": "x"}, {"note": 5}, {"bad key": "x"}],
    "metadata/resourceVersion": ["1", "many", ""],
    "metadata/name": ["other"],
    "metadata/uid": ["5"],
    "metadata/namespace": ["elsewhere"],
    "metadata/generation": [99],
    "metadata/creationTimestamp": ["2020-01-01T00:00:00Z"],
    "metadata/deletionTimestamp": ["2020-01-01T00:00:00Z"],
    "metadata/finalizers": [[]],
    "metadata/generateName": ["a-"],
    "kind": ["Pot"],
    "status": [{"phase": "Succeeded"}],
}
_TRAINING_JOB: Final[Values] = {
    "spec": ["none", None],
    "spec/runPolicy/suspend": [True, True, True, False, False, "yes"],
    "spec/tasks/0/replicas": [1, 3, 0, "two"],
    "spec/tasks/0/name": ["other"],
    "spec/tasks/0/priority": [5],
    "spec/tasks/1": [{"name": "more", "role": "worker", "replicas": 1}],
    "spec/queue": ["default", "nowhere"],
    "spec/priorityClassName": ["nobody", "system-cluster-critical"],
    "spec/minAvailable": [1, 99],
    "spec/rendezvous": ["torch", "mpi"],
    "spec/estimatedDuration": ["1h", "soon"],
    "spec/runPolicy/backoffLimit": [1, -1],
    "spec/runPolicy/minRuntimeSeconds": [60, -5],
    "spec/color": ["red"],
}
_QUEUE: Final[Values] = {
    "spec": ["none", None],
    "spec/limit": [{"nvidia.com/gpu": "4"}, {"nvidia.com/gpu": "99"}, {"cpu": "many"}, {}],
    "spec/guaranteed": [{"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "50"}],
    "spec/weight": [2, 0],
    "spec/state": ["Closed", "Open", "Half"],
    "spec/parent": ["default", "nowhere"],
    "spec/userPriority": [90, 900],
}
_POD_GROUP: Final[Values] = {
    "spec": ["none", None],
    "spec/minMember": [1, 3, 0],
    "spec/queue": ["default", "nowhere"],
    "spec/priorityClassName": ["nobody"],
    "spec/minTaskMember": [{"a": 1}, {"a": 9}],
}
_POD: Final[Values] = {
    "spec": ["none", None],
    "spec/containers/0/image": ["other", ""],
    "spec/containers/0/name": ["other"],
    "spec/activeDeadlineSeconds": [500, 0],
    "spec/nodeName": ["gpu-09"],
    "spec/schedulingGates": [[{"name": "a"}]],
    "spec/tolerations": [[{"key": "a", "operator": "Exists"}]],
    "spec/terminationGracePeriodSeconds": [1],
    "spec/priorityClassName": ["system-node-critical"],
    "spec/restartPolicy": ["Always"],
    "spec/hostNetwork": [True],
}
_JOB: Final[Values] = {
    "spec": ["none"],
    "spec/suspend": [True, False],
    "spec/parallelism": [1, 3, -1],
    "spec/completions": [1, 5],
    "spec/backoffLimit": [2],
    "spec/completionMode": ["Indexed"],
    "spec/template/spec/restartPolicy": ["OnFailure"],
    "spec/template/metadata/labels": [{"a": "b"}],
    "spec/selector": [{"matchLabels": {"a": "b"}}],
}
_PRIORITY_CLASS: Final[Values] = {
    "value": [5, DROP],
    "description": ["for tests"],
    "preemptionPolicy": ["Never"],
    "globalDefault": ["yes"],
}
CHANGES: Final[Mapping[str, tuple[Edit, ...]]] = {
    kind: table(_OF_ALL) + table(of_kind) * 2
    for kind, of_kind in (
        ("TrainingJob", _TRAINING_JOB),
        ("Queue", _QUEUE),
        ("PodGroup", _POD_GROUP),
        ("Pod", _POD),
        ("Job", _JOB),
        ("PriorityClass", _PRIORITY_CLASS),
    )
}
OPERATIONS: Final[tuple[Any, ...]] = (
    [{"op": "add", "path": "/metadata/labels/size", "value": "big"}],
    [{"op": "replace", "path": "/metadata/labels/team", "value": "b"}],
    [{"op": "remove", "path": "/metadata/labels/team"}],
    [{"op": "remove", "path": "/metadata/labels/nothing"}],
    [{"op": "replace", "path": "/spec/nothing/below", "value": 1}],
    [{"op": "test", "path": "/metadata/name", "value": "other"}],
    [{"op": "copy", "from": "/metadata/name", "path": "/metadata/labels/team"}],
    [{"op": "move", "from": "/metadata/labels/team", "path": "/metadata/labels/size"}],
    [{"op": "fly", "path": "/metadata/labels/team"}],
    [{"op": "add", "value": "big"}],
    [{"op": "add", "path": "metadata", "value": "big"}],
    [{"op": "remove", "path": "/spec"}],
    [{"op": "replace", "path": "/spec", "value": "none"}],
    {"op": "add"},
    [],
)
"""JSON patches."""
