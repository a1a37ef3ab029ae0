"""Learned policies by name: those whose checkpoints come with Bireme, and those in a folder.

Each shipped checkpoint lies in ``bireme/rl/checkpoints/NAME``; its policies are the classes here
that are called for it in :mod:`bireme.registry`. A checkpoint is loaded once per process.
"""

from functools import cache
from pathlib import Path
from typing import Final

from bireme.rl.checkpoints import Checkpoint, load
from bireme.rl.orderers import LearnedOrderer
from bireme.rl.placers import LearnedPlacer

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


class OrdererAt(LearnedOrderer):
    """The orderer of the checkpoint in a folder."""

    def __init__(self, folder: str) -> None:
        super().__init__(load(Path(folder)))


class PlacerAt(LearnedPlacer):
    """The placer of the checkpoint in a folder."""

    def __init__(self, folder: str) -> None:
        super().__init__(load(Path(folder)))
