"""Files of what an algorithm has learned so far: safetensors, with the rest as JSON in the header.

A state is a nested dict whose leaves are tensors or what JSON can hold. Tensors are stored under
their path (``policy/actor.0.weight``); everything else, counters and the states of generators, is
the header's ``state``. No code is ever read from such a file.
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
    """An algorithm or early stopping, which can be interrupted and resumed."""

    def state_dict(self) -> dict[str, Any]:
        """Return all it takes to go on from here: tensors, and what JSON can hold."""

    def load_state_dict(self, state: dict[str, Any]) -> object:
        """Go on where :meth:`state_dict` was taken."""


def save(path: Path, learned: Storable) -> None:
    state = learned.state_dict()
    # safetensors refuses tensors that share memory.
    # And on the CPU, so that a run may go on where there is no accelerator.
    tensors = {name: part.detach().cpu().clone().contiguous() for name, part in _tensors(state)}
    header = {"format": FORMAT, "kind": type(learned).__name__, "state": json.dumps(_rest(state))}
    # Replaced as a whole: a write that is broken off never takes the place of a good file.
    draft = path.with_name(path.name + ".new")
    save_file(tensors, draft, metadata=header)
    draft.replace(path)


def load(path: Path, learned: Storable) -> None:
    """Give ``learned`` the state in ``path``.

    Raises:
        SettingError: the file cannot be read, was saved from something else, or holds another
            policy; the text names the first tensor that differs.
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
    """Check that both policies have the same tensors; moments and episodes may differ."""
    names = sorted(name for name in {*mine, *stored} if name.startswith("policy/"))
    for name in names:
        here, there = (_shape(found.get(name)) for found in (mine, stored))
        if here != there:
            raise SettingError(
                f"{str(path)!r} holds another policy: tensor {name!r} is {there} there and {here} "
                "here; build the policy with the sizes it was saved with, or start anew"
            )


def _shape(found: Tensor | None) -> str:
    return "missing" if found is None else f"{str(found.dtype)[6:]}{tuple(found.shape)}"


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
