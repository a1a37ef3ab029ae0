"""Mutants that stories of the cluster tier catch on the embedded cluster and on the real one.

``python -m tools.mutants [STORY]`` plants the mutant of each story beside this checkout and plays
the story in both worlds. The exit status is 1 where one of them does not fail. So it is shown that
the embedded cluster has not made the story weaker.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.worktrees import PACKAGES, ROOT, checkout

WORLDS: Final = ("embedded", "real")
# A mutant makes a story wait for what never comes.
_PATIENCE_SECONDS: Final = 45
_TIMEOUT_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a line of a program, and a test that fails by it."""

    file: str
    line: str
    mutated: str
    test: str


MUTANTS: Final = {
    "board": Mutant(
        "policies/bireme/cli/ui/server.py",
        "if secrets.compare_digest(cookie.encode(), self._session.encode()):",
        "if True:",
        "only_the_browser",
    ),
    "elastic": Mutant(
        "policies/bireme/core/resizing.py",
        "able = {r.gang.uid: r for r in elastic if _may_resize(admission, r)}",
        "able = {r.gang.uid: r for r in elastic if r.gang.uid is None}",
        "grows_shrinks",
    ),
    "failed_starts": Mutant(
        "policies/bireme/core/pod_constraints.py",
        "if (self.number, self.protocol) != (other.number, other.protocol):",
        "if self.number:",
        "a_port_of_the_only_node",
    ),
    "foreign_gangs": Mutant(
        "policies/bireme/kube/watched_objects.py",
        "if facts.is_gated and facts.scheduler == names.SCHEDULER_NAME:",
        "if facts.is_gated:",
        "only_carry_the_label",
    ),
    "job_life_cycle": Mutant(
        "operator/bireme_operator/lifecycle.py",
        "if restarts >= limit:",
        "if restarts > limit:",
        "keeps_failing",
    ),
    "learned_policy": Mutant(
        "policies/bireme/rl/lookup.py",
        'text: str = getattr(self, f"{part}_parameters")',
        'text: str = ""',
        "a_changed_parameter",
    ),
    "maintenance": Mutant(
        "policies/bireme/core/cycle.py",
        "may_move = can_move(policy) and windows is None",
        "may_move = False",
        "slow_gpus",
    ),
    "preemption": Mutant(
        "policies/bireme/core/preemption.py",
        "& (candidates.place > reach.place)",
        "& (candidates.place < 0)",
        "lower_gang_stops",
    ),
    "preferences": Mutant(
        "policies/bireme/core/preferences.py",
        "return gang.has_preferences or bool(nodes.softly_tainted)",
        "return False",
        "a_node_to_avoid",
    ),
    "queue_changes": Mutant(
        "policies/bireme/core/queues.py",
        "if demand.get(name, 0) > 0 and used.get(name, 0) + demand[name] > self.limit[name]",
        "if demand.get(name, 0) > self.limit[name]",
        "a_limit_below",
    ),
    "reasons": Mutant(
        "policies/bireme/core/obstacles.py",
        "return Hold(gang, Reason.QUEUE_NOT_FOUND, messages.no_queue(gang, snapshot))",
        "return None",
        "unknown_queue",
    ),
    "records": Mutant(
        "policies/bireme/replay/writer.py",
        "if self._line > 1 and _is_unchanged(line):",
        "if self._line > 1:",
        "replay_of",
    ),
    "run_time_history": Mutant(
        "policies/bireme/kube/run_times.py",
        "return self._history.estimate(job.key[0], job.template)",
        "return None",
        "short_job",
    ),
    "starts_on_nodes": Mutant(
        "policies/bireme/kube/watched_objects.py",
        'node = "" if is_leaving else pod.status.nominated_node_name or ""',
        'node = ""',
        "has_freed",
    ),
}
"""By the story ``tests/cluster/test_STORY.py``."""


def is_caught(story: str, world: str, folder: Path) -> bool:
    """Return whether a story fails with its mutant in a world."""
    mutant = MUTANTS[story]
    paths = [str(folder / each) for each in PACKAGES]
    with _planted(mutant, folder):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-x"),
                # A second run of what fails by the mutant takes time and shows nothing.
                *("--only-rerun", "no error reads like this"),
                *(f"tests/cluster/test_{story}.py", "-k", mutant.test),
            ],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(folder), *paths]),
                "BIREME_CLUSTERS": world,
                "BIREME_PATIENCE_SECONDS": str(_PATIENCE_SECONDS),
            },
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout[-2000:]}")
    return done.returncode == 1


@contextmanager
def _planted(mutant: Mutant, folder: Path) -> Iterator[None]:
    with checkout(folder, "HEAD"):
        path = folder / mutant.file
        text = path.read_text()
        if text.count(mutant.line) != 1:
            raise ValueError(f"{mutant.file} has the line of a mutant not once: {mutant.line}")
        path.write_text(text.replace(mutant.line, mutant.mutated))
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the stories that were named, or all, and return the exit status."""
    parser = argparse.ArgumentParser(prog="mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stories", nargs="*", metavar="STORY", help=", ".join(MUTANTS))
    stories = parser.parse_args(arguments).stories or list(MUTANTS)
    if unknown := sorted(set(stories) - MUTANTS.keys()):
        parser.error(f"no story {unknown[0]!r}; there are {', '.join(MUTANTS)}")
    missed = 0
    for story in stories:
        for world in WORLDS:
            caught = is_caught(story, world, ROOT / ".run" / f"mutant-{os.getpid()}")
            print(f"{story} {world}: {'caught' if caught else 'MISSED'}", flush=True)
            missed += not caught
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
