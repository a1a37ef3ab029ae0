"""Two views of one state of DeepRM's world: the queue as a set of jobs, and the paper's image.

The set is what the scorer sees, by the very formulas it is served with
(:mod:`bireme.rl.encoders.a2c`). The image is that of Mao et al., HotNets 2016, figure 2: beside
each other the slots of each resource over the next steps, what each job of the queue asks, and a
count of the jobs behind the queue.
"""

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.rl.encoders import a2c as encoder
from bireme.training.deeprm.arrivals import RESOURCES, Setting
from bireme.training.deeprm.world import State
from bireme.training.worlds import Observation


def as_set(state: State) -> Observation:
    """Features of every job of the queue, of the whole, and what may be chosen.

    ``jobs`` float32, shape (worlds, queue slots, features); ``context`` float32, shape (worlds,
    features); ``mask`` bool, shape (worlds, queue slots + 1), the void last; ``present`` bool,
    shape (worlds, queue slots), the slots with a job in them.
    """
    slots, clock = state.setting.slots, state.clock[:, None]
    free = state.free / slots
    later = [_free_after(state, steps) / slots for steps in encoder.HORIZON_STEPS]
    waits = np.where(state.queue >= 0, clock - state.queue, 0)
    jobs = encoder.job_features(
        state.of_queue(state.jobs.demands) / slots,
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
    return state.setting.slots - np.einsum("wj,wjr->wr", still_runs, state.jobs.demands)


def width(setting: Setting) -> int:
    """Columns of the image: 124 with a queue of 5, 224 with one of 10, as in DeepRM."""
    columns = RESOURCES * setting.slots * (1 + setting.queue_slots)
    return columns + _backlog_columns(setting) + 1


def as_image(state: State) -> Observation:
    """The paper's image and what may be chosen.

    ``image`` float32, shape (worlds, 1, horizon steps, columns): for each resource what runs, then
    what each job of the queue asks; then the backlog, and how long ago a job came last.
    ``mask`` as in :func:`as_set`.
    """
    parts = []
    for resource in range(RESOURCES):
        parts += [_canvas(state, resource), _asked(state, resource)]
    image = np.concatenate([*parts, _backlog(state), _since_arrival(state)], axis=2)
    return {"image": image[:, None].astype(np.float32), "mask": state.allowed}


def _canvas(state: State, resource: int) -> BoolArray:
    """Slots held in each coming step, filled from the left, (worlds, horizon, slots)."""
    setting = state.setting
    coming = state.clock[:, None] + np.arange(setting.horizon_steps)
    runs = state.ends[:, None, :] > coming[:, :, None]
    held = (runs * state.jobs.demands[:, None, :, resource]).sum(axis=2)
    return np.asarray(np.arange(setting.slots) < held[:, :, None])


def _asked(state: State, resource: int) -> BoolArray:
    """Each job of the queue as a block: its duration down, its demand across."""
    setting = state.setting
    durations = state.of_queue(state.jobs.durations)
    demands = state.of_queue(state.jobs.demands)[:, :, resource]
    down = np.arange(setting.horizon_steps)[:, None, None] < durations[:, None, :, None]
    across = np.arange(setting.slots) < demands[:, None, :, None]
    return np.asarray((down & across).reshape(len(durations), setting.horizon_steps, -1))


def _backlog(state: State) -> BoolArray:
    """One cell for each job behind the queue, row by row."""
    setting = state.setting
    behind = np.maximum(state.waiting.sum(axis=1) - setting.queue_slots, 0)
    cells = np.arange(setting.horizon_steps * _backlog_columns(setting))
    is_taken = cells < behind[:, None]
    return np.asarray(is_taken.reshape(len(behind), setting.horizon_steps, -1))


def _since_arrival(state: State) -> FloatArray:
    """One column that holds how long ago a job came last, 1 for a horizon or more."""
    setting = state.setting
    come = state.jobs.exists & (np.arange(setting.arrival_steps) <= state.clock[:, None])
    last = np.where(come, np.arange(setting.arrival_steps), -setting.horizon_steps).max(axis=1)
    share = np.minimum((state.clock - last) / setting.horizon_steps, 1.0)
    return np.broadcast_to(share[:, None, None], (len(share), setting.horizon_steps, 1))


def _backlog_columns(setting: Setting) -> int:
    return -(-setting.backlog_slots // setting.horizon_steps)
