"""The jobs of the demo: a seeded mix whose story always has the same turns.

The seed deals names, shapes, run times and moments of arrival from fixed decks. Whatever it deals:

    1. An elastic job has the cluster almost for itself, and grows.
    2. A wave fills the cluster to the last GPU; the elastic job gives back for it.
    3. A gang of five eighths of the cluster is blocked and gets a reservation. Of the two gangs it
       waits for, one ends long before the other is expected to: a short gang fits into that gap,
       long ones do not.
    4. Three equal gangs run when an urgent one comes. Nothing smaller than one of them makes room.
    5. The stopped one runs again, beside sweeps that meet the limit of their queue.

One gang is larger than the cluster, one fails at its first attempt. What must not depend on how
fast the machine is waits for its cue: another job that holds its GPUs. ``unit`` is the GPUs of a
whole replica; four of them, a *block*, are a quarter of the cluster.
"""

import random
from collections.abc import Iterable
from typing import Any, Final

from bireme_lab.embedded.fake_nodes import HOSTNAME_LABEL, RACK
from tools.demo.workload import (
    Cue,
    Submission,
    Workload,
    elastic,
    parameter_server,
    single,
    torch,
)

ELASTIC: Final = "llama-elastic"
RESERVED: Final = "search-pretrain"
URGENT: Final = "hotfix"


def full_workload(seed: int) -> Workload:
    """24 jobs for 16 nodes of 8 GPUs in 4 racks; about 45 s of work."""
    chance = random.Random(seed)  # noqa: S311  # a reproducible mix, not a secret
    names = _dealt(chance, "recommender", "ads-ctr", "feed-rank")
    shapes = _dealt(chance, (2, 8, 1, RACK), (1, 4, 4, RACK), (1, 4, 2, HOSTNAME_LABEL))
    last = parameter_server("search-rank", 2, 6, 2, 8, RACK)
    jobs = [
        *(
            Submission(0, parameter_server(name, servers, workers, gpus, 24, near))
            for name, (servers, workers, gpus, near) in zip(names, shapes, strict=True)
        ),
        *_acts(chance, 8, sweeps=6),
        Submission(1.5, last, after=Cue(32, (URGENT,))),
    ]
    return Workload(16, 4, tuple(jobs))


def small_workload(seed: int) -> Workload:
    """The same story with 17 jobs on 4 nodes in 2 racks, every replica a quarter as large."""
    chance = random.Random(seed)  # noqa: S311  # a reproducible mix, not a secret
    service = Submission(0, parameter_server("recommender", 1, 4, 2, 24, RACK))
    return Workload(4, 2, (service, *_acts(chance, 2, sweeps=2)))


def _acts(chance: random.Random, unit: int, sweeps: int) -> Iterable[Submission]:
    """Yield all turns of the story, for a cluster of 16 units of which services hold a block."""
    yield Submission(0, elastic(ELASTIC, (2, 4, 8), unit // 2, 28), "elastic")
    never = torch("llm-175b", 19, unit, 20, priority="training-urgent")
    yield Submission(1, never, "never fits")
    # A block that soon ends and one and a half that last: with these the cluster is full.
    first, second = _dealt(chance, "vit-large", "protein-fold")
    grown, full = Cue(4 * unit, (ELASTIC,)), Cue(6 * unit, (second,))
    yield Submission(1, torch(first, 7, unit // 2, 7, expected=9), after=grown)
    yield Submission(1, torch(second, 5, unit, 12, expected=17), after=grown)
    large = torch(RESERVED, 9, unit, 6, "production", expected=10)
    yield Submission(0.7, large, "reserved", full)
    short = torch("eval-suite", 1, unit, 3, priority="training-background", expected=5)
    yield Submission(2.5, short, "short", full)
    blocks = _blocks(chance, unit, full)
    yield from blocks
    started = Cue(10 * unit, (RESERVED,))
    # With this one there, what the blocks leave is less than a block, whatever else has ended.
    service = parameter_server("fraud-score", 1, unit // 2, 2, 15, HOSTNAME_LABEL)
    yield Submission(0.5, service, after=started)
    flaky = torch("flaky-finetune", 1, unit // 2, 4, expected=7, fails_at="0")
    yield Submission(1, flaky, "fails once", started)
    third = Cue(12 * unit, tuple(block.name for block in blocks))
    urgent = torch(URGENT, 3, unit, 7, "production", "training-urgent", expected=10)
    yield Submission(4, urgent, "urgent", third)
    yield from _sweeps(chance, sweeps, third)


def _blocks(chance: random.Random, unit: int, full: Cue) -> list[Submission]:
    """Five equal gangs of a block, all too long for the gap, even to start there and yield.

    The first two start when the large gang has ended, the third when the services have; none ends
    just when the urgent gang comes, which would find room then.
    """
    names = _dealt(chance, "whisper", "bert-large", "gemma-dpo", "moe-scaling", "phi-distill")
    seconds = _dealt(chance, 11, 11, 12, 12, 13)
    expected = _dealt(chance, 40, 44, 50, 50, 60)
    arrivals = (1.5, *sorted(round(chance.uniform(2, 6), 1) for _ in range(4)))
    parts: tuple[Any, ...] = ("long", "", "", "", "")
    return [
        Submission(at, torch(name, 3, unit, run, expected=most), part, full)
        for name, at, run, most, part in zip(names, arrivals, seconds, expected, parts, strict=True)
    ]


def _sweeps(chance: random.Random, count: int, after: Cue) -> Iterable[Submission]:
    """Single-replica jobs in the queue with a limit, more than it allows at a time."""
    gpus = _dealt(chance, *[1] * (count - 2), 2, 2)
    for number, held in enumerate(gpus):
        job = single(f"sweep-{number}", held, chance.randint(4, 7))
        yield Submission(round(chance.uniform(0, 6), 1), job, after=after)


def _dealt(chance: random.Random, *cards: Any) -> tuple[Any, ...]:
    return tuple(chance.sample(cards, len(cards)))
