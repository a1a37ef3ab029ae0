"""What an episode of DeepRM's world achieved: mean slowdown, completion and waiting time of jobs.

Liang et al., PAKDD 2020, section 4.2; times in steps. Only episodes in which every job has finished
have them: jobs left out would flatter whoever starves them.
"""

from dataclasses import dataclass

import numpy as np

from bireme.core.resources import FloatArray
from bireme.training.deeprm.world import State


@dataclass(frozen=True, slots=True, eq=False)
class Measures:
    """Means over the jobs of each world, and the longest wait, shape (worlds,).

    Attributes:
        slowdown: Completion time over duration.
        completion_steps: From arrival to finish.
        waiting_steps: From arrival to start.
        longest_wait_steps: The waiting time of the job that waited longest.
    """

    slowdown: FloatArray
    completion_steps: FloatArray
    waiting_steps: FloatArray
    longest_wait_steps: FloatArray


def measure(state: State) -> Measures:
    """The measures of worlds that are over; ValueError where one is not, or had no jobs."""
    exists, durations = state.jobs.exists, state.jobs.durations
    if not state.is_over.all():
        world = int(np.flatnonzero(~state.is_over)[0])
        raise ValueError(f"world {world} has jobs that have not finished; measure it when over")
    if not exists.any(axis=1).all():
        world = int(np.flatnonzero(~exists.any(axis=1))[0])
        raise ValueError(f"world {world} had no jobs, so that it has no means; take another seed")
    waits = state.started - np.arange(exists.shape[1])
    completions = waits + durations
    found = (completions / durations, completions, waits)
    slowdown, completion, waiting = (np.mean(each, axis=1, where=exists) for each in found)
    longest = np.max(waits, axis=1, where=exists, initial=0).astype(np.float64)
    return Measures(slowdown, completion, waiting, longest)
