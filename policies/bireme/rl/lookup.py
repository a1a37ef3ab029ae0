"""Learned policies by name: a checkpoint's folder, and the policy that a SchedulingPolicy names.

The search begins in the user's folder. Then it continues with the checkpoints that come with
Bireme, and with each distribution that adds some (:mod:`bireme.policy_names`).
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
from bireme.policy_names import checkpoint_folder, checkpoint_folders, lab_remedy
from bireme.rl import components
from bireme.rl.checkpoint import Checkpoint, load


class PolicySource(msgspec.Struct, frozen=True, omit_defaults=True):
    """Source of a policy: a SchedulingPolicy, or the settings if all fields are empty.

    Attributes:
        name: Name of the SchedulingPolicy; empty for the settings.
        orderer, placer, sizer: Names of the parts; empty for the checkpoint's, or the settings'.
        checkpoint, sha256: Name of its checkpoint, and sha256 of the card.
        orderer_parameters, placer_parameters, sizer_parameters: Parameters of each part, as text:
            ``beta=0.0001``.
        queues: The queues of a canary.
        canaries: Canaries that decide for the gangs of their queues, oldest first.
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
        text: str = getattr(self, f"{part}_parameters")
        return text

    def part_name(self, part: PartName) -> str:
        """Return the name of ``part`` with its parameters; empty without a name."""
        name: str = getattr(self, part)
        return with_parameters(name, self.parameters(part)) if name else ""


SETTINGS_SOURCE: Final = PolicySource()
"""The policy of the settings."""


def load_named(name: str, directory: str = "", sha256: str | None = None) -> Checkpoint:
    """Load checkpoint ``name``: from ``directory/name`` if that exists, else a shipped one.

    Raises:
        CheckpointError: no checkpoint has that name, its sha256 is not ``sha256``, or it cannot be
            used.
    """
    return load(find_folder(name, directory), sha256)


def policy_of(
    source: PolicySource,
    settings: SchedulingSettings,
    make_policy: Callable[[SchedulingSettings], Policy],
    directory: str = "",
) -> tuple[Policy, PolicySource]:
    """Make the policy of ``source``; also return ``source`` with its checkpoint's sha256.

    Its canaries are made likewise.

    A part without a name in ``source`` comes from its checkpoint, if that has it, else from
    ``settings``. :func:`load_named` loads the checkpoint. ``make_policy`` is
    :func:`bireme.registry.make_policy`.

    Raises:
        CheckpointError: the checkpoint cannot be used, or all its parts are named otherwise.
        SettingError: as ``make_policy``, or a parameter is bad or belongs to no part.
    """
    canaries = [policy_of(canary, settings, make_policy, directory) for canary in source.canaries]
    return with_canaries(*_policy_of(source, settings, make_policy, directory), canaries)


def with_canaries(
    policy: Policy, source: PolicySource, canaries: Iterable[tuple[Policy, PolicySource]]
) -> tuple[Policy, PolicySource]:
    """Return ``policy`` and its ``source`` with these canaries, each with its source."""
    pairs = list(canaries)
    policies = tuple(
        Canary(canary.name, frozenset(canary.queues), canary_policy)
        for canary_policy, canary in pairs
    )
    sources = tuple(canary for _, canary in pairs)
    return (
        replace(policy, canaries=policies),
        msgspec.structs.replace(source, canaries=sources),
    )


def _policy_of(
    source: PolicySource,
    settings: SchedulingSettings,
    make_policy: Callable[[SchedulingSettings], Policy],
    directory: str,
) -> tuple[Policy, PolicySource]:
    part_settings = replace(
        settings,
        orderer=source.part_name("orderer") or settings.orderer,
        placer=source.part_name("placer") or settings.placer,
        sizer=source.part_name("sizer") or settings.sizer,
    )
    policy = make_policy(part_settings)
    if not source.checkpoint:
        _refuse_parameters_of_nothing(source, ())
        return policy, source
    checkpoint = load_named(source.checkpoint, directory, source.sha256 or None)
    # a name in the SchedulingPolicy takes precedence over the checkpoint
    free = [part for part in components.parts_of(checkpoint.card) if not getattr(source, part)]
    _refuse_parameters_of_nothing(source, free)
    if not free:
        raise CheckpointError(
            f"checkpoint {source.checkpoint!r} would not be used: what it has "
            f"({', '.join(components.parts_of(checkpoint.card))}) is named beside it; "
            "leave that out"
        )
    parts: dict[str, Any] = {part: _component(checkpoint, part, source) for part in free}
    return replace(policy, **parts), msgspec.structs.replace(source, sha256=checkpoint.sha256)


def _component(checkpoint: Checkpoint, part: PartName, source: PolicySource) -> Any:
    try:
        return components.component_of(checkpoint, part, source.parameters(part))
    except SettingError as error:
        where = f"parameters.{part}, of checkpoint {source.checkpoint!r}"
        raise SettingError(f"{where}: {error}") from error


def _refuse_parameters_of_nothing(source: PolicySource, free: Collection[PartName]) -> None:
    """Refuse parameters of a part that has no name and is not in ``free``, the checkpoint's."""
    for part in PARTS:
        parameters = source.parameters(part)
        if parameters and not getattr(source, part) and part not in free:
            of = source.checkpoint
            lacks = f", nor has checkpoint {of!r} one" if of else ""
            raise SettingError(
                f"parameters.{part} are {parameters!r}, and no {part} is named{lacks}; "
                f"name the {part} that they are for, or leave them out"
            )


def find_folder(name: str, directory: str = "") -> Path:
    """Return the folder of checkpoint ``name``; raises CheckpointError if there is none."""
    # a user's checkpoint may replace a shipped one of the same name
    user_folders = _folders(Path(directory)) if directory else {}
    folder = user_folders.get(name) or checkpoint_folder(name)
    if folder is None:
        where = f"below checkpoint_directory {directory!r}, " if directory else ""
        raise CheckpointError(
            f"no checkpoint is called {name!r} {where}and none of those that come with Bireme "
            f"({', '.join(checkpoint_folders()) or 'there are none'}); copy its folder below "
            f"checkpoint_directory, or correct the name{lab_remedy()}"
        )
    return folder


def _folders(directory: Path) -> dict[str, Path]:
    """Return folders below ``directory`` by name, so that a name never becomes a path."""
    try:
        return {path.name: path for path in directory.iterdir() if path.is_dir()}
    except OSError as error:
        raise CheckpointError(
            f"checkpoint_directory {str(directory)!r} cannot be read: {error}; name a folder that "
            "this program may list"
        ) from error
