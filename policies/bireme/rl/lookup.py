"""Learned policies by name: a checkpoint's folder, and the policy that a SchedulingPolicy names.

Checkpoints are looked for in a folder of the user's own first, then among those that come with
Bireme, ``bireme/rl/checkpoints/NAME``.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from bireme.core.errors import SettingError
from bireme.core.parameters import with_parameters
from bireme.core.policy import PARTS, Canary, PartName, Policy
from bireme.core.settings import SchedulingSettings
from bireme.onnx.errors import CheckpointError
from bireme.rl import components
from bireme.rl.checkpoint import Checkpoint, load

FOLDER: Final = Path(__file__).parent / "checkpoints"
"""The checkpoints that come with Bireme."""


class PolicySource(msgspec.Struct, frozen=True, omit_defaults=True):
    """Source of a policy: a SchedulingPolicy, or the settings if all fields are empty.

    Attributes:
        name: Of the SchedulingPolicy; empty for the settings.
        orderer, placer, sizer: As it names them; empty for the checkpoint's, or the settings'.
        checkpoint, sha256: Name of its checkpoint, and sha256 of the card.
        orderer_parameters, placer_parameters, sizer_parameters: Those of each part, as text:
            ``beta=0.0001``.
        queues: Of a canary, the queues that it names.
        canaries: Those that decide beside it for the gangs of their queues, oldest first.
    """

    name: str = ""
    orderer: str = ""
    placer: str = ""
    sizer: str = ""
    checkpoint: str = ""
    sha256: str = ""
    orderer_parameters: str = ""
    placer_parameters: str = ""
    sizer_parameters: str = ""
    queues: tuple[str, ...] = ()
    canaries: "tuple[PolicySource, ...]" = ()

    def parameters(self, part: PartName) -> str:
        """Return the parameters of ``part``."""
        found: str = getattr(self, f"{part}_parameters")
        return found

    def named(self, part: PartName) -> str:
        """Return the name of ``part`` with its parameters; empty if it is not named."""
        name: str = getattr(self, part)
        return with_parameters(name, self.parameters(part)) if name else ""


SETTINGS_SOURCE: Final = PolicySource()
"""The policy of the settings."""


def load_named(name: str, directory: str = "", sha256: str | None = None) -> Checkpoint:
    """Load checkpoint ``name``: from ``directory/name`` if that exists, else a shipped one.

    Raises:
        CheckpointError: no checkpoint has that name, it is not the one with ``sha256``, or it
            cannot be used.
    """
    return load(named_folder(name, directory), sha256)


def policy_of(
    source: PolicySource,
    settings: SchedulingSettings,
    make_policy: Callable[[SchedulingSettings], Policy],
    directory: str = "",
) -> tuple[Policy, PolicySource]:
    """Make the policy of ``source``; also return ``source`` with its checkpoint's sha256.

    Its canaries are made likewise.

    A part that ``source`` leaves out is that of its checkpoint, found as by :func:`load_named`, if
    it has one, else as in ``settings``. ``make_policy`` is :func:`bireme.registry.make_policy`.

    Raises:
        CheckpointError: the checkpoint cannot be used, or nothing would be left for it to do.
        SettingError: as ``make_policy``, or a parameter is bad, or that of no part.
    """
    canaries = [policy_of(each, settings, make_policy, directory) for each in source.canaries]
    return with_canaries(*_policy_of(source, settings, make_policy, directory), canaries)


def with_canaries(
    policy: Policy, source: PolicySource, canaries: Iterable[tuple[Policy, PolicySource]]
) -> tuple[Policy, PolicySource]:
    """Return ``policy`` and its ``source`` with these canaries, each with its source."""
    made = list(canaries)
    beside = tuple(Canary(each.name, frozenset(each.queues), own) for own, each in made)
    sources = tuple(each for _, each in made)
    return (
        replace(policy, canaries=beside),
        msgspec.structs.replace(source, canaries=sources),
    )


def _policy_of(
    source: PolicySource,
    settings: SchedulingSettings,
    make_policy: Callable[[SchedulingSettings], Policy],
    directory: str,
) -> tuple[Policy, PolicySource]:
    chosen = replace(
        settings,
        orderer=source.named("orderer") or settings.orderer,
        placer=source.named("placer") or settings.placer,
        sizer=source.named("sizer") or settings.sizer,
    )
    policy = make_policy(chosen)
    if not source.checkpoint:
        _refuse_parameters_of_nothing(source, ())
        return policy, source
    checkpoint = load_named(source.checkpoint, directory, source.sha256 or None)
    # what the SchedulingPolicy names itself counts before the checkpoint
    free = [part for part in components.served(checkpoint.card) if not getattr(source, part)]
    _refuse_parameters_of_nothing(source, free)
    if not free:
        raise CheckpointError(
            f"checkpoint {source.checkpoint!r} would not be used: what it has "
            f"({', '.join(components.served(checkpoint.card))}) is named beside it; leave that out"
        )
    made: dict[str, Any] = {part: _component(checkpoint, part, source) for part in free}
    return replace(policy, **made), msgspec.structs.replace(source, sha256=checkpoint.sha256)


def _component(checkpoint: Checkpoint, part: PartName, source: PolicySource) -> Any:
    try:
        return components.component_of(checkpoint, part, source.parameters(part))
    except SettingError as error:
        where = f"parameters.{part}, of checkpoint {source.checkpoint!r}"
        raise SettingError(f"{where}: {error}") from error


def _refuse_parameters_of_nothing(source: PolicySource, free: Collection[PartName]) -> None:
    """Refuse parameters of a part that is neither named nor one of ``free``, the checkpoint's."""
    for part in PARTS:
        given = source.parameters(part)
        if given and not getattr(source, part) and part not in free:
            of = source.checkpoint
            lacks = f", nor has checkpoint {of!r} one" if of else ""
            raise SettingError(
                f"parameters.{part} are {given!r}, and no {part} is named{lacks}; "
                f"name the {part} that they are for, or leave them out"
            )


def named_folder(name: str, directory: str = "") -> Path:
    """Return the folder of checkpoint ``name``; raises CheckpointError if there is none."""
    # a user's own may replace a shipped one of the same name
    own = _folders(Path(directory)) if directory else {}
    ours = _folders(FOLDER) if FOLDER.exists() else {}
    found = own.get(name) or ours.get(name)
    if found is None:
        where = f"below checkpoint_directory {directory!r}, " if directory else ""
        raise CheckpointError(
            f"no checkpoint is called {name!r} {where}and none of those that come with Bireme "
            f"({', '.join(sorted(ours)) or 'there are none'}); copy its folder below "
            "checkpoint_directory, or correct the name"
        )
    return found


def _folders(directory: Path) -> dict[str, Path]:
    """Return folders below ``directory`` by name: names are looked up, never made into paths."""
    try:
        return {path.name: path for path in directory.iterdir() if path.is_dir()}
    except OSError as error:
        raise CheckpointError(
            f"checkpoint_directory {str(directory)!r} cannot be read: {error}; name a folder that "
            "this program may list"
        ) from error
