"""Whose turn it is: a tournament between queues, down their tree, anew for every gang.

Every branch stands for the gang that would be its next and is compared with its siblings by how it
stands at that moment, then by the place of that gang in the policy's order. What a branch stands
for is remembered until something in it changes, so a turn costs a look at the siblings along one
path, not at the whole tree.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bireme.core.policy import Ranked
from bireme.core.resources import Amounts

Standing = tuple[bool, float]
"""How a branch stands among its siblings; the lowest wins."""


def turns(
    ranked: Sequence[Ranked],
    route: Callable[[str], tuple[str, ...]],
    standing: Callable[[str, Amounts], Standing],
    changes: Mapping[str, int],
) -> Iterator[Ranked]:
    """Every entry of ``ranked``, when its turn comes.

    Args:
        ranked: In the policy's order.
        route: The branches that the gangs of a queue count in, the smallest first.
        standing: That of a branch whose next gang asks the given amounts.
        changes: By branch, how often it has changed; 0 for those left out.
    """
    top = _top(ranked, route)
    while (turn := _winner(top.below, standing, changes)) is not None:
        turn.leaf.waiting.popleft()
        branch: _Branch | None = turn.leaf
        while branch is not None:
            branch.seen, branch = -1, branch.above
        yield turn.entry


@dataclass(slots=True, eq=False)
class _Branch:
    """A branch in the tournament: who waits in it, and what it stands for at the moment."""

    name: str
    above: "_Branch | None" = None
    below: list["_Branch"] = field(default_factory=list)
    waiting: deque[tuple[int, Ranked]] = field(default_factory=deque)
    turn: "_Turn | None" = None
    key: tuple[Standing, int] = ((True, 0.0), 0)
    seen: int = -1
    """The number of changes at which turn and key were found; -1 when they must be found anew."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """The gang a branch sends, its place in the policy's order, and where it waits."""

    rank: int
    entry: Ranked
    leaf: _Branch


def _top(ranked: Sequence[Ranked], route: Callable[[str], tuple[str, ...]]) -> _Branch:
    """The branches with waiting gangs, below one that holds them all."""
    top = _Branch("")
    known: dict[str, _Branch] = {}
    for rank, entry in enumerate(ranked):
        branch = top
        for name in reversed(route(entry.gang.queue)):
            if name not in known:
                known[name] = _Branch(name, branch)
                branch.below.append(known[name])
            branch = known[name]
        branch.waiting.append((rank, entry))
    return top


def _winner(
    branches: list[_Branch],
    standing: Callable[[str, Amounts], Standing],
    changes: Mapping[str, int],
) -> _Turn | None:
    """Whose turn it is among siblings; those with nobody left are dropped."""
    for branch in [b for b in branches if b.seen != changes.get(b.name, 0)]:
        branch.seen = changes.get(branch.name, 0)
        if branch.below:
            branch.turn = _winner(branch.below, standing, changes)
        else:
            branch.turn = _Turn(*branch.waiting[0], branch) if branch.waiting else None
        if branch.turn is None:
            branches.remove(branch)
        else:
            now = standing(branch.name, branch.turn.entry.gang.demand)
            branch.key = (now, branch.turn.rank)
    return min(branches, key=lambda branch: branch.key).turn if branches else None
