"""Checkpoints by name, and whole policies of which one is a part.

A folder of one's own goes before the checkpoints that come with Bireme.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.kube.scheduling_policies import PolicyFacts
from bireme.records.lines import Source
from bireme.rl import checkpoints, parts, shipped
from bireme.rl.checkpoints import Checkpoint
from bireme.rl.errors import CheckpointError


def load(name: str, directory: str = "", sha256: str | None = None) -> Checkpoint:
    """The checkpoint called ``name``: ``directory/name`` if there is such a folder, else a shipped.

    Raises:
        CheckpointError: there is none of that name, it is not the one with ``sha256``, or it
            cannot be used.
    """
    return checkpoints.load(folder_of(name, directory), sha256)


def source_of(facts: PolicyFacts) -> Source:
    """What a SchedulingPolicy whose spec can be read names."""
    assert facts.spec is not None  # noqa: S101  # a spec that cannot be read is never loaded
    spec, checkpoint = facts.spec, facts.spec.checkpoint
    return Source(
        facts.name,
        spec.orderer or "",
        spec.placer or "",
        spec.sizer or "",
        checkpoint.name if checkpoint is not None else "",
        (checkpoint.sha256 or "") if checkpoint is not None else "",
    )


def policy_of(
    source: Source,
    settings: SchedulingSettings,
    make_policy: Callable[[SchedulingSettings], Policy],
    directory: str = "",
) -> tuple[Policy, Source]:
    """What ``source`` names over ``settings``, and ``source`` with the sha256 of its checkpoint.

    A part that it leaves out is that of its checkpoint, looked for as :func:`load` does, if it has
    one, else as in ``settings``; ``make_policy`` is :func:`bireme.registry.make_policy`.

    Raises:
        CheckpointError: the checkpoint cannot be used, or nothing would be left for it to do.
        SettingError: as ``make_policy``.
    """
    chosen = replace(
        settings,
        orderer=source.orderer or settings.orderer,
        placer=source.placer or settings.placer,
        sizer=source.sizer or settings.sizer,
    )
    policy = make_policy(chosen)
    if not source.checkpoint:
        return policy, source
    checkpoint = load(source.checkpoint, directory, source.sha256 or None)
    free = [part for part in parts.served(checkpoint.card) if not getattr(source, part)]
    if not free:
        raise CheckpointError(
            f"checkpoint {source.checkpoint!r} would not be used: what it has "
            f"({', '.join(parts.served(checkpoint.card))}) is named beside it; leave that out"
        )
    if "orderer" in free:
        policy = replace(policy, orderer=parts.orderer_of(checkpoint))
    if "placer" in free:
        policy = replace(policy, placer=parts.placer_of(checkpoint))
    if "sizer" in free:
        policy = replace(policy, sizer=parts.sizer_of(checkpoint))
    return policy, msgspec.structs.replace(source, sha256=checkpoint.sha256)


def folder_of(name: str, directory: str = "") -> Path:
    """Where the checkpoint lies. Raises CheckpointError: nowhere."""
    own = _folders(Path(directory)) if directory else {}
    ours = _folders(shipped.FOLDER) if shipped.FOLDER.exists() else {}
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
    """Folders below ``directory``: a name is looked up in them, never made into a path."""
    try:
        return {path.name: path for path in directory.iterdir() if path.is_dir()}
    except OSError as error:
        raise CheckpointError(
            f"checkpoint_directory {str(directory)!r} cannot be read: {error}; name a folder that "
            "this program may list"
        ) from error
