"""Registry of policies: orderers, placers and sizers by name, loaded on first use.

The names stand in :mod:`bireme.policy_names`. A name with a colon is a user's own class:
``mypackage.mymodule:MyPolicy``. ``checkpoint:FOLDER`` is the learned policy in a folder. Parameters
follow a question mark:
``tiresias-las?threshold_device_seconds=30000&promote_knob=8``. The module
:mod:`bireme.core.parameters` documents how a class declares them.
"""

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, cast

from bireme import policy_names
from bireme.core.errors import SettingError, nearest
from bireme.core.parameters import parameters_of, read_parameters, with_parameters
from bireme.core.policy import PARTS, Orderer, PartName, Placer, Policy, Scorer, Sizer
from bireme.core.settings import SchedulingSettings
from bireme.onnx.errors import CheckpointError

CHECKPOINT: Final = "checkpoint:"
"""Prefix of the name of a learned policy in a folder."""
DEFAULT_SIZER: Final = "goodput"
"""The default sizer; the general rule sizes the gangs that it leaves out."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a policy: its name, and the method that each of its classes must have."""

    name: PartName
    method: str

    @property
    def paths(self) -> Mapping[str, str]:
        """``module:Class`` of every registered name."""
        return policy_names.class_paths(self.name)


_ORDERER = _Part("orderer", "order")
_PLACER = _Part("placer", "place")
_SIZER = _Part("sizer", "sizes")
_KINDS = (_ORDERER, _PLACER, _SIZER)


def make_policy(settings: SchedulingSettings) -> Policy:
    """Return the policy of ``settings``; the default rules decide where its answer is invalid.

    Raises:
        SettingError: as :func:`make_orderer`.
    """
    defaults = SchedulingSettings()
    return Policy(
        make_orderer(settings.orderer),
        make_placer(settings.placer),
        make_sizer(settings.sizer or DEFAULT_SIZER),
        rules=Policy(make_orderer(defaults.orderer), make_placer(defaults.placer)),
    )


def make_orderer(name: str) -> Orderer:
    """Return the orderer called ``name``, which may end in parameters.

    Raises:
        SettingError: no orderer has the name (the message proposes the nearest), a parameter is
            unknown or invalid, or the user's class cannot be loaded.
    """
    return cast(Orderer, _make(_ORDERER, name))


def make_placer(name: str) -> Placer:
    """Return the placer called ``name``; raises as :func:`make_orderer`."""
    return cast(Placer, _make(_PLACER, name))


def make_sizer(name: str) -> Sizer:
    """Return the sizer called ``name``; raises as :func:`make_orderer`."""
    return cast(Sizer, _make(_SIZER, name))


def default_scorer() -> Scorer:
    """Return the rule that scores nodes; it also answers for a learned scorer that fails."""
    return cast(Scorer, import_module("bireme.heuristics.scoring").BestFitScorer())


def learned_scorer(
    placer: str,
    checkpoint: str,
    directory: str = "",
    sha256: str | None = None,
    parameters: str = "",
) -> Scorer | None:
    """Return the scorer of a SchedulingPolicy, or None if its placer is not a learned one.

    A named ``placer`` takes precedence over that of ``checkpoint``, which is loaded from
    ``directory``, or else from those that come with Bireme. ``parameters`` are those of either,
    as text.

    Raises:
        SettingError: as :func:`make_orderer`.
        CheckpointError: the checkpoint is missing, is not the one with ``sha256``, or is unusable.
    """
    components = import_module("bireme.rl.components")
    checkpoint_found = None
    if placer:
        # A user's own class scores no node: only the operator must have it installed.
        policy = None if ":" in placer else make_placer(with_parameters(placer, parameters))
        checkpoint_found = (
            policy.checkpoint if isinstance(policy, components.LearnedPlacer) else None
        )
    elif checkpoint:
        checkpoint_found = import_module("bireme.rl.lookup").load_named(
            checkpoint, directory, sha256
        )
        if checkpoint_found.placer is not None:
            checkpoint_found = checkpoint_found.with_parameters("placer", parameters)
    if checkpoint_found is None or checkpoint_found.placer is None:
        return None
    return cast(Scorer, components.LearnedScorer(checkpoint_found))


def imported_class(name: str) -> str:
    """Return the ``module:Class`` that the policy ``name`` imports; empty if it imports none."""
    path = name.partition("?")[0]
    return path if ":" in path and not path.startswith(CHECKPOINT) else ""


def names(part: PartName) -> list[str]:
    """Return the registered names of ``part``."""
    return list(_part(part).paths)


def shipped_parts() -> dict[str, tuple[PartName, ...]]:
    """Return the parts that each installed learned policy decides, by its name."""
    learned = {names.learned for names in policy_names.distributions()}
    parts: dict[str, tuple[PartName, ...]] = {}
    for part in PARTS:
        for name, path in _part(part).paths.items():
            if path.partition(":")[0] in learned:
                parts[name] = (*parts.get(name, ()), part)
    return dict(sorted(parts.items()))


def maker_of(part: PartName, name: str) -> type:
    """Return the class behind ``name``, without parameters; raises as :func:`make_orderer`."""
    kind = _part(part)
    return _load(kind, _path(kind, name))


def describe() -> list[tuple[str, str, str]]:
    """Return part, name and one-line summary of every registered policy."""
    return [
        (kind.name, name, _description(kind, path).partition("\n")[0])
        for kind in _KINDS
        for name, path in kind.paths.items()
    ]


def explain(name: str) -> list[tuple[str, str]]:
    """Return part, and description with parameters, of every registered policy called ``name``.

    Raises:
        SettingError: no policy has the name; the message proposes the nearest.
    """
    descriptions: list[tuple[str, str]] = [
        (kind.name, _description_with_parameters(kind, kind.paths[name]))
        for kind in _KINDS
        if name in kind.paths
    ]
    if not descriptions:
        every = {path_name for kind in _KINDS for path_name in kind.paths}
        raise SettingError(
            f"no policy is called {name!r}; {nearest(name, sorted(every))}"
            f"{policy_names.lab_remedy()}"
        )
    return descriptions


def _description(kind: _Part, path: str) -> str:
    return inspect.getdoc(_load(kind, path)) or ""


def _description_with_parameters(kind: _Part, path: str) -> str:
    made_of = parameters_of(_load(kind, path)).values()
    lines = [f"  {parameter}" for parameter in made_of] or ["  none"]
    return "\n".join([_description(kind, path), "", "Parameters:", *lines])


def _make(kind: _Part, text: str) -> object:
    # Imported by name: a rule needs neither ONNX Runtime nor the other rules.
    name, _, query = text.partition("?")
    path = _path(kind, name)
    if name.startswith(CHECKPOINT):
        try:
            checkpoint = import_module("bireme.rl.checkpoint").load(
                Path(name.removeprefix(CHECKPOINT))
            )
            components = import_module("bireme.rl.components")
            return components.component_of(checkpoint, kind.name, query)
        except (CheckpointError, SettingError) as error:
            raise SettingError(f"{kind.name} {text!r}: {error}") from error
    made_by = _load(kind, path)
    try:
        return made_by(**read_parameters(made_by, query))
    except (CheckpointError, SettingError) as error:
        raise SettingError(f"{kind.name} {text!r}: {error}") from error
    except TypeError as error:
        raise SettingError(
            f"{kind.name} {text!r} cannot be made: {error}; give its parameters defaults"
        ) from error


def _path(kind: _Part, name: str) -> str:
    path = name if ":" in name else policy_names.class_path(kind.name, name)
    if not path:
        raise SettingError(
            f"no {kind.name} is called {name!r}; {nearest(name, kind.paths)}, or "
            f"package.module:Class for one of yours{policy_names.lab_remedy()}"
        )
    return path


def _part(name: PartName) -> _Part:
    return next(kind for kind in _KINDS if kind.name == name)


def _load(kind: _Part, path: str) -> type:
    """Return the class at ``module:Class``.

    Raises:
        SettingError: the module or the class does not exist, or it lacks the method of its kind.
    """
    module_name, _, attribute = path.partition(":")
    where = f"{kind.name} {path!r}"
    try:
        module = import_module(module_name)
    except (ImportError, ValueError, TypeError) as error:
        raise SettingError(
            f"{where}: module {module_name!r} cannot be imported: {error}; "
            "install it where this program runs, or correct the name"
        ) from error
    loaded_class = getattr(module, attribute, None)
    if not inspect.isclass(loaded_class):
        close = difflib.get_close_matches(attribute, vars(module), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "; name a class that it defines"
        raise SettingError(f"{where}: module {module_name!r} has no class {attribute!r}{hint}")
    if not callable(getattr(loaded_class, kind.method, None)):
        raise SettingError(
            f"{where}: {attribute} has no method {kind.method!r}, which every {kind.name} needs; "
            "see bireme.core.policy"
        )
    return loaded_class
