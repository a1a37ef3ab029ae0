"""JSON patches (RFC 6902) as the API server applies them: ``replace`` adds a key that is missing.

Source: ``gopkg.in/evanphx/json-patch.v4``. A library of Python that follows the RFC refuses what
the server accepts.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, TypeAlias

_Place: TypeAlias = tuple[Any, str]
_INDEX: Final = re.compile(r"[+-]?\d+")
_MISSING: Final = "missing value"


class JsonPatchError(ValueError):
    """An operation does not apply, in the API server's words."""


class FailedTestError(JsonPatchError):
    """An operation ``test`` finds another value."""


def patch(target: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Return ``target`` after ``operations``.

    Raises:
        JsonPatchError: an operation does not apply.
    """
    document = [deepcopy(target)]
    for operation in operations:
        kind = operation.get("op", "unknown")
        if kind not in _OPERATIONS:
            raise JsonPatchError(f"Unexpected kind: {kind}")
        _OPERATIONS[kind](document, operation)
    return document[0]


def _text(operation: Mapping[str, Any], name: str) -> str:
    text = operation.get(name)
    if not isinstance(text, str):
        field = {"from": "operation, missing from field: "}.get(name, "")
        problem = f"{operation['op']} operation failed to decode {name}: {field}{_MISSING}"
        raise JsonPatchError(problem)
    return text


def _find(document: list[Any], path: str) -> _Place | None:
    """Return the container of a path and the key in it; None where there is no container."""
    _, *parts = path.split("/")
    if not parts:
        return None
    container, keys = document[0], [part.replace("~1", "/").replace("~0", "~") for part in parts]
    for key in keys[:-1]:
        try:
            container = _get(container, key)
        except JsonPatchError:
            return None
        if not isinstance(container, dict | list):
            return None
    return container, keys[-1]


def _require(document: list[Any], path: str, problem: str) -> _Place:
    place = _find(document, path)
    if place is None:
        raise JsonPatchError(f"{problem}: {_MISSING}")
    return place


def _index(key: str, length: int) -> int:
    if not _INDEX.fullmatch(key):
        raise JsonPatchError(f'strconv.Atoi: parsing "{key}": invalid syntax')
    index = int(key)
    if not -length <= index < length:
        raise JsonPatchError(f"Unable to access invalid index: {index}: invalid index referenced")
    return index + length if index < 0 else index


def _get(container: Any, key: str) -> Any:
    if isinstance(container, list):
        return container[_index(key, len(container))]
    return container.get(key)


def _insert(container: Any, key: str, value: Any) -> None:
    if not isinstance(container, list):
        container[key] = value
    elif key == "-":
        container.append(value)
    elif not _INDEX.fullmatch(key):
        problem = f"value was not a proper array index: '{key}'"
        raise JsonPatchError(f'{problem}: strconv.Atoi: parsing "{key}": invalid syntax')
    else:
        container.insert(_index(key, len(container) + 1), value)


def _delete(container: Any, key: str) -> None:
    if isinstance(container, list):
        del container[_index(key, len(container))]
    elif key not in container:
        raise JsonPatchError(f"Unable to remove nonexistent key: {key}: {_MISSING}")
    else:
        del container[key]


def _add(document: list[Any], operation: Mapping[str, Any]) -> None:
    path = _text(operation, "path")
    problem = f'add operation does not apply: doc is missing path: "{path}"'
    container, key = _require(document, path, problem)
    try:
        _insert(container, key, deepcopy(operation.get("value")))
    except JsonPatchError as error:
        raise JsonPatchError(f"error in add for path: '{path}': {error}") from None


def _remove(document: list[Any], operation: Mapping[str, Any]) -> None:
    path = _text(operation, "path")
    problem = f'remove operation does not apply: doc is missing path: "{path}"'
    container, key = _require(document, path, problem)
    try:
        _delete(container, key)
    except JsonPatchError as error:
        raise JsonPatchError(f"error in remove for path: '{path}': {error}") from None


def _replace(document: list[Any], operation: Mapping[str, Any]) -> None:
    path, value = _text(operation, "path"), deepcopy(operation.get("value"))
    if not path:
        if not isinstance(value, dict | list):
            # The server formats an error that there is not, by a verb of Go.
            raise JsonPatchError("replace operation value must be object or array: %!w(<nil>)")
        document[0] = value
        return
    problem = f"replace operation does not apply: doc is missing path: {path}"
    container, key = _require(document, path, problem)
    try:
        _get(container, key)
    except JsonPatchError:
        problem = f"replace operation does not apply: doc is missing key: {path}: {_MISSING}"
        raise JsonPatchError(problem) from None
    if isinstance(container, list):
        container[_index(key, len(container))] = value
    else:
        container[key] = value


def _move(document: list[Any], operation: Mapping[str, Any]) -> None:
    source, path = _text(operation, "from"), _text(operation, "path")
    problem = f"move operation does not apply: doc is missing from path: {source}"
    container, key = _require(document, source, problem)
    try:
        value = _get(container, key)
        _delete(container, key)
    except JsonPatchError as error:
        raise JsonPatchError(f"error in move for path: '{key}': {error}") from None
    problem = f"move operation does not apply: doc is missing destination path: {path}"
    container, key = _require(document, path, problem)
    try:
        _insert(container, key, value)
    except JsonPatchError as error:
        raise JsonPatchError(f"error in move for path: '{path}': {error}") from None


def _copy(document: list[Any], operation: Mapping[str, Any]) -> None:
    source, path = _text(operation, "from"), _text(operation, "path")
    problem = f"copy operation does not apply: doc is missing from path: {source}"
    container, key = _require(document, source, problem)
    try:
        value = deepcopy(_get(container, key))
    except JsonPatchError as error:
        raise JsonPatchError(f"error in copy for from: '{source}': {error}") from None
    problem = f"copy operation does not apply: doc is missing destination path: {path}"
    container, key = _require(document, path, problem)
    try:
        _insert(container, key, value)
    except JsonPatchError as error:
        raise JsonPatchError(f"error while adding value during copy: {error}") from None


def _test(document: list[Any], operation: Mapping[str, Any]) -> None:
    path = _text(operation, "path")
    value = document[0]
    if path:
        problem = f"test operation does not apply: is missing path: {path}"
        container, key = _require(document, path, problem)
        try:
            value = _get(container, key)
        except JsonPatchError as error:
            raise JsonPatchError(f"error in test for path: '{path}': {error}") from None
    if value != operation.get("value"):
        raise FailedTestError(f"testing value {path} failed: test failed")


_OPERATIONS: Final[Mapping[str, Callable[[list[Any], Mapping[str, Any]], None]]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
