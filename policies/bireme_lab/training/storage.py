"""Files of an algorithm's state: safetensors, with the rest as JSON in the header.

A state is a nested dict. Its leaves are tensors or JSON values. Tensors are stored under their path
(``policy/actor.0.weight``); counters and the states of generators are in the header's ``state``.
Such a file never contains code.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bireme.core.errors import SettingError

FORMAT: Final = "bireme-training/1"


@runtime_checkable
class Storable(Protocol):
    """An algorithm or early stopping that can be interrupted and resumed."""

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state: tensors and JSON values."""

    def load_state_dict(self, state: dict[str, Any]) -> object:
        """Restore the state that :meth:`state_dict` returned."""


def save(path: Path, learned: Storable) -> None:
    state = learned.state_dict()
    # Clone, because safetensors refuses tensors that share memory.
    # Move to the CPU, so that a run may resume without an accelerator.
    tensors = {name: part.detach().cpu().clone().contiguous() for name, part in _tensors(state)}
    header = {"format": FORMAT, "kind": type(learned).__name__, "state": json.dumps(_rest(state))}
    # Replace atomically: an interrupted write never replaces a good file.
    draft = path.with_name(path.name + ".new")
    save_file(tensors, draft, metadata=header)
    draft.replace(path)


def load(path: Path, learned: Storable) -> None:
    """Give ``learned`` the state in ``path``.

    Raises:
        SettingError: the file cannot be read, is of another class, or has another policy; the text
            names the first different tensor.
    """
    header, tensors = _read(path)
    if header["kind"] != type(learned).__name__:
        raise SettingError(
            f"{str(path)!r} was saved from a {header['kind']}, not from a "
            f"{type(learned).__name__}; name the file of this one, or start anew"
        )
    _check_policy(path, dict(_tensors(learned.state_dict())), tensors)
    state: dict[str, Any] = json.loads(header["state"])
    for name, part in tensors.items():
        *parents, last = name.split("/")
        place = state
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = part
    learned.load_state_dict(state)


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise SettingError(f"{str(path)!r} cannot be read as safetensors: {error}") from error
    if header.get("format") != FORMAT:
        raise SettingError(
            f"{str(path)!r} has format {header.get('format')!r}, not {FORMAT!r}; it was not "
            "written by this version's training"
        )
    return header, tensors


def _check_policy(path: Path, mine: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
    """Check that both policies have equal tensor shapes; moments and episodes may differ."""
    names = sorted(name for name in {*mine, *stored} if name.startswith("policy/"))
    for name in names:
        expected, actual = (_shape(tensors.get(name)) for tensors in (mine, stored))
        if expected != actual:
            raise SettingError(
                f"{str(path)!r} holds another policy: tensor {name!r} is {actual} there and "
                f"{expected} here; build the policy with the sizes it was saved with, or start anew"
            )


def _shape(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{str(tensor.dtype)[6:]}{tuple(tensor.shape)}"


def _tensors(state: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Tensor]]:
    for name, part in state.items():
        if isinstance(part, Tensor):
            yield path + name, part
        elif isinstance(part, Mapping):
            yield from _tensors(part, f"{path}{name}/")


def _rest(state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _rest(part) if isinstance(part, Mapping) else part
        for name, part in state.items()
        if not isinstance(part, Tensor)
    }
