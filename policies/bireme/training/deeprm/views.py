"""Two views of one state of DeepRM's world: the queue as a set of jobs, and the paper's image.

Both are made by the very formulas that they are served with: :mod:`bireme.rl.encoders.a2c` and
:mod:`bireme.rl.encoders.a2c_image`.
"""

import numpy as np

from bireme.core.resources import IntArray
from bireme.rl.encoders import a2c as encoder
from bireme.rl.encoders import a2c_image as pictures
from bireme.training.deeprm.arrivals import SLOTS
from bireme.training.deeprm.world import State
from bireme.training.worlds import Observation


def as_set(state: State) -> Observation:
    """Features of every job of the queue, of the whole, and what may be chosen.

    ``jobs`` float32, shape (worlds, queue slots, features); ``context`` float32, shape (worlds,
    features); ``mask`` bool, shape (worlds, queue slots + 1), the void last; ``present`` bool,
    shape (worlds, queue slots), the slots with a job in them.
    """
    clock = state.clock[:, None]
    free = state.free / SLOTS
    later = [_free_after(state, steps) / SLOTS for steps in encoder.HORIZON_STEPS]
    waits = np.where(state.queue >= 0, clock - state.queue, 0)
    jobs = encoder.job_features(
        state.of_queue(state.jobs.demands) / SLOTS,
        free,
        np.maximum(state.of_queue(state.jobs.durations), 1),
        waits,
    )
    context = encoder.context_features(free, np.stack(later, axis=-2), state.waiting.sum(axis=1))
    return {
        "jobs": jobs,
        "context": context,
        "mask": state.allowed,
        "present": state.queue >= 0,
    }


def _free_after(state: State, steps: int) -> IntArray:
    """Slots that are free so many steps on if nobody starts, shape (worlds, resources)."""
    still_runs = state.ends > state.clock[:, None] + steps
    return np.asarray(SLOTS - np.einsum("wj,wjr->wr", still_runs, state.jobs.demands))


def as_image(state: State) -> Observation:
    """The paper's image and what may be chosen.

    ``image`` float32, shape (worlds, 1, horizon steps, columns), by
    :func:`bireme.rl.encoders.a2c_image.paint`; ``mask`` as in :func:`as_set`.
    """
    coming = state.clock[:, None] + np.arange(pictures.HORIZON_STEPS)
    runs = state.ends[:, None, :] > coming[:, :, None]
    come = state.jobs.exists & (np.arange(state.setting.arrival_steps) <= state.clock[:, None])
    last = np.where(come, np.arange(state.setting.arrival_steps), -pictures.HORIZON_STEPS)
    image = pictures.paint(
        np.einsum("wtj,wjr->wtr", runs, state.jobs.demands),
        state.of_queue(state.jobs.durations),
        state.of_queue(state.jobs.demands),
        np.maximum(state.waiting.sum(axis=1) - state.setting.queue_slots, 0),
        state.clock - last.max(axis=1),
    )
    return {"image": image, "mask": state.allowed}
