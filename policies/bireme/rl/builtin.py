"""Learned policies that come with Bireme: a class for each part of each shipped checkpoint.

A checkpoint lies in ``bireme/rl/checkpoints/NAME``; :mod:`bireme.policy_names` maps policy names to
the classes here. ``bireme policies`` prints the first paragraph of a class.
"""

from functools import cache

from bireme.rl.checkpoint import Checkpoint
from bireme.rl.components import LearnedOrderer
from bireme.rl.lookup import load_named


@cache  # the parts of one policy share a checkpoint
def checkpoint(name: str) -> Checkpoint:
    """Return the shipped checkpoint ``name``, loaded once per process; raises as load_named."""
    return load_named(name)


class LearnedIndex(LearnedOrderer):
    """A small network judges each gang by its service, size and estimate, and may stop others.

    The score is the index, highest first, and the preemption priority.
    Source: Gittins, J. R. Stat. Soc. B 41(2), 1979, learned on public traces by evolution.
    """

    def __init__(self) -> None:
        super().__init__(checkpoint("learned-index"))
