"""What RLPTO's network sees of the world, by the very formulas of the cluster's encoder."""

import numpy as np

from bireme.rl.encoders.rlpto_features import Facts, context_features, task_features
from bireme.training.rlpto.world import State, raw
from bireme.training.worlds import Array, Observation


def seen(state: State) -> dict[str, Array]:
    """``tasks``, ``context``, ``present`` and ``mask``; slots that run nothing are padding."""
    facts = facts_of(state)
    return {
        "tasks": task_features(facts),
        "context": context_features(facts),
        "present": state.is_running,
        "mask": state.allowed,
    }


def seen_and_raw(state: State) -> Observation:
    """The same beside the facts, for a teacher that goes by them."""
    return {**raw(state), **seen(state)}


def facts_of(state: State) -> Facts:
    """The tasks of every world."""
    slots, allowed = state.is_running.shape[1], state.allowed
    return Facts(
        done=state.iterations,
        loss=state.loss / np.maximum(state.worst_loss, 1e-9),
        accuracy=state.accuracy,
        gain=np.where(state.iterations > 0, state.gain, np.nan),
        seconds=state.seconds,
        nodes=state.nodes.astype(np.float64),
        share=state.nodes / state.total[:, None],
        may_grow=allowed[:, 1 : slots + 1],
        may_shrink=allowed[:, slots + 1 :],
        is_there=state.is_running,
        free=state.free / state.total,
        waiting=state.waiting.astype(np.float64),
        beta=state.beta,
    )
