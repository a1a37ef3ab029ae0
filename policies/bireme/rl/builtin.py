"""Learned policies by name: those whose checkpoints come with Bireme, and those in a folder.

Each shipped checkpoint lies in ``bireme/rl/checkpoints/NAME``; its policies are the classes here
that are called for it in :mod:`bireme.registry`. A checkpoint is loaded once per process.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.kube.policy_source import PolicyFacts
from bireme.onnx import checkpoints
from bireme.onnx.checkpoints import Checkpoint, load
from bireme.onnx.errors import CheckpointError
from bireme.replay.record import Source
from bireme.rl import components
from bireme.rl.components import (
    ChosenOrderer,
    ChosenPlacer,
    LearnedOrderer,
    LearnedPlacer,
    LearnedSizer,
)

FOLDER: Final = Path(__file__).parent / "checkpoints"


def folder_of(name: str) -> Path:
    """Where the checkpoint called ``name`` lies, if Bireme has one."""
    return FOLDER / name


@cache
def checkpoint(name: str) -> Checkpoint:
    """The shipped checkpoint called ``name``. Raises CheckpointError as :func:`load` does."""
    return load(folder_of(name))


class A2c(LearnedOrderer):
    """A small network that weighs each gang against the queue, trained to cut slowdown.

    Running gangs are never stopped; the score is the network's. Trained in DeepRM's world.
    Source: Liang et al., PAKDD 2020 (A2cScheduler), with one scorer shared over the queue.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("a2c"))


class A2cCnn(LearnedOrderer):
    """The paper's convolutional network on an image of the cluster and the queue, in tens.

    Running gangs are never stopped; the score is the network's. It sees small gangs of a large
    cluster as alike. Trained in DeepRM's world.
    Source: Liang et al., PAKDD 2020 (A2cScheduler).
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("a2c-cnn"))


class DasOrder(LearnedOrderer):
    """A transformer over the queue that also sees the machines (ordering agent of DAS).

    Running gangs are never stopped; the score is the network's. Trained together with the placer.
    Source: the paper on DAS, with the fill-ins that its recipe states.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("das"))


class DasPlacement(LearnedPlacer):
    """The machines that a network likes best for the task (the placement agent of DAS).

    Trained together with the orderer of the same name.
    Source: the paper on DAS, with the fill-ins that its recipe states.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("das"))


class LearnedIndex(LearnedOrderer):
    """A small network judges each gang by its service, size and estimate, and may stop others.

    The score is the index, highest first, and the claim.
    Source: Gittins, J. R. Stat. Soc. B 41(2), 1979, learned on public traces by evolution.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("learned-index"))


class RlptoSizer(LearnedSizer):
    """Moves single workers, from gangs whose reports gain little to those that gain more.

    A gang whose last report gained less than 3e-4 gives one worker back; a network hands out what
    is free. Gangs that report nothing get what they ask for. Trained in the paper's world.
    Source: Lu et al., IEEE TPDS 2023 (RLPTO), with the fill-ins that its recipe states.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("rlpto"))


class TapfingerOrder(ChosenOrderer):
    """Gangs as node pools choose them, all others by arrival (the agents of TapFinger).

    Running gangs are never stopped. Made for pools of 4 to 32 GPUs.
    Source: Li et al., IEEE TPDS 2023 (TapFinger), with the fill-ins that its recipe states.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("tapfinger"))


class TapfingerPlacement(ChosenPlacer):
    """Each gang packed into the node pool that chose it (agents of TapFinger).

    Trained together with the orderer and the sizer of the same name.
    Source: Li et al., IEEE TPDS 2023 (TapFinger), with the fill-ins that its recipe states.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("tapfinger"))


class TapfingerSizer(LearnedSizer):
    """The sizes that node pools choose for gangs that start (the agents of TapFinger).

    Trained together with the orderer and the placer of the same name.
    Source: Li et al., IEEE TPDS 2023 (TapFinger), with the fill-ins that its recipe states.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("tapfinger"))


# Checkpoints by name, and whole policies of which one is a part.
#
# A folder of one's own goes before the checkpoints that come with Bireme.


def load_named(name: str, directory: str = "", sha256: str | None = None) -> Checkpoint:
    """The checkpoint called ``name``: ``directory/name`` if there is such a folder, else a shipped.

    Raises:
        CheckpointError: there is none of that name, it is not the one with ``sha256``, or it
            cannot be used.
    """
    return checkpoints.load(named_folder(name, directory), sha256)


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
    checkpoint = load_named(source.checkpoint, directory, source.sha256 or None)
    free = [part for part in components.served(checkpoint.card) if not getattr(source, part)]
    if not free:
        raise CheckpointError(
            f"checkpoint {source.checkpoint!r} would not be used: what it has "
            f"({', '.join(components.served(checkpoint.card))}) is named beside it; leave that out"
        )
    if "orderer" in free:
        policy = replace(policy, orderer=components.orderer_of(checkpoint))
    if "placer" in free:
        policy = replace(policy, placer=components.placer_of(checkpoint))
    if "sizer" in free:
        policy = replace(policy, sizer=components.sizer_of(checkpoint))
    return policy, msgspec.structs.replace(source, sha256=checkpoint.sha256)


def named_folder(name: str, directory: str = "") -> Path:
    """Where the checkpoint lies. Raises CheckpointError: nowhere."""
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
    """Folders below ``directory``: a name is looked up in them, never made into a path."""
    try:
        return {path.name: path for path in directory.iterdir() if path.is_dir()}
    except OSError as error:
        raise CheckpointError(
            f"checkpoint_directory {str(directory)!r} cannot be read: {error}; name a folder that "
            "this program may list"
        ) from error
