"""JSON patches: each operation as kube-apiserver's library applies or refuses it."""

from typing import Any

import pytest

from bireme_lab.embedded.api.json_patches import FailedTestError, JsonPatchError, patch

LIST = {"a": [1, 2], "m": {"k": "v"}}


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        ({"op": "add", "path": "/a/-", "value": 3}, {"a": [1, 2, 3]}),
        ({"op": "add", "path": "/a/-1", "value": 3}, {"a": [1, 2, 3]}),
        ({"op": "add", "path": "/m/x~1y~0z", "value": 1}, {"m": {"k": "v", "x/y~z": 1}}),
        ({"op": "replace", "path": "/m/new", "value": 1}, {"m": {"k": "v", "new": 1}}),
        ({"op": "replace", "path": "/a/0", "value": 9}, {"a": [9, 2]}),
        ({"op": "remove", "path": "/a/-1"}, {"a": [1]}),
        ({"op": "move", "from": "/m/k", "path": "/m/l"}, {"m": {"l": "v"}}),
        ({"op": "copy", "from": "/a/1", "path": "/a/0"}, {"a": [2, 1, 2]}),
        ({"op": "test", "path": "/m/none"}, {}),
    ],
)
def test_operation_changes_what_its_path_names(operation: Any, result: Any) -> None:
    assert patch(LIST, [operation]) == {**LIST, **result}


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (
            {"op": "add", "path": "/x/y", "value": 1},
            'add operation does not apply: doc is missing path: "/x/y": missing value',
        ),
        (
            {"op": "remove", "path": "/m/x"},
            "error in remove for path: '/m/x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            {"op": "replace", "path": "/a/7", "value": 1},
            "replace operation does not apply: doc is missing key: /a/7: missing value",
        ),
        (
            {"op": "add", "path": "/a/x", "value": 1},
            (
                "error in add for path: '/a/x': value was not a proper array index: 'x':"
                ' strconv.Atoi: parsing "x": invalid syntax'
            ),
        ),
        ({"op": "grow", "path": "/a"}, "Unexpected kind: grow"),
    ],
)
def test_operation_that_does_not_apply_says_why(operation: Any, message: str) -> None:
    with pytest.raises(JsonPatchError) as caught:
        patch(LIST, [operation])
    assert str(caught.value) == message


def test_failed_test_is_an_error_of_its_own_and_leaves_the_target_alone() -> None:
    target = {"a": {"b": 1}}
    with pytest.raises(FailedTestError):
        patch(
            target, [{"op": "remove", "path": "/a/b"}, {"op": "test", "path": "/a/b", "value": 1}]
        )
    assert target == {"a": {"b": 1}}
