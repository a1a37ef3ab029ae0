"""Tiresias: gangs are ordered by their service, because run times are unknown.

Service is devices times run time. Two rules turn it into an order: least attained service in two
queues (2D-LAS), for unknown distributions, and the Gittins index (2D-Gittins), for a distribution
of service times that is known from history. Both are discrete on purpose: the rank changes only
when service crosses a boundary, or gangs would stop each other without end. Within one level
running gangs stay ahead in the order of their start, the others follow by arrival.

Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI'19, section 3.2.

The paper lets a gang stop others as soon as it arrives. A stop loses the work since the last
checkpoint, so both rules accept a delay.
"""

import bisect
import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from bireme.core.bounds import Above, Within
from bireme.core.errors import SettingError
from bireme.core.gangs import Gang
from bireme.core.parameters import check_parameters
from bireme.core.resources import FloatArray
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import SortedOrderer, SortKey, device_seconds, devices, with_delay

_YARN_COUNTS = (
    *(43, 613, 664, 1631, 1805, 1753, 987, 712, 347, 374),
    *(288, 221, 187, 145, 120, 56, 35, 11, 5, 2),
)
"""Jobs whose service lies up to 128, 256, 512, ... GPU-seconds and above the previous bound.

Counted from the 9999 samples in ``simulator/yarn-gput10000.csv`` of SymbioticLab/Tiresias
(Apache-2.0), the file from which its authors compute the Gittins index.
"""
_YARN_QUANTUM = 128.0
_MAX_LEVELS = 64

_Delay = Annotated[int, Within(0), "wait from which a gang stops others, 0 for any"]


class TiresiasLas(SortedOrderer):
    """Least attained service first, in two queues with a threshold (2D-LAS).

    The score is minus the device-seconds so far, the preemption priority 0 in the first queue and
    -1 in the second. The default threshold is that of the authors' simulator; Pollux' port of it
    has 57 600.

    Source: Gu et al., Tiresias, NSDI'19, section 3.2.
    """

    def __init__(
        self,
        threshold_device_seconds: Annotated[
            float, Above(0), "service from which a gang is in the second queue"
        ] = 3250.0,
        promote_knob: Annotated[
            float,
            Above(0),
            "a gang that waited so many times as long as it ran goes back to the first queue",
        ] = math.inf,
        preemption_delay_seconds: _Delay = 0,
    ) -> None:
        """``promote_knob`` is the paper's PROMOTEKNOB: a promoted gang counts its service from
        zero.

        Waits and run times count since arrival, where the paper counts since the last promotion. A
        promotion does not raise the preemption priority: waiting alone must not.

        Raises:
            SettingError: a parameter is out of its range.
        """
        check_parameters(
            type(self),
            threshold_device_seconds=threshold_device_seconds,
            promote_knob=promote_knob,
            preemption_delay_seconds=preemption_delay_seconds,
        )
        self._threshold, self._promote_knob = threshold_device_seconds, promote_knob
        self._delay_seconds = preemption_delay_seconds

    def sort_key(self, gang: Gang, snapshot: ClusterSnapshot) -> SortKey:
        """First queue before second, running before waiting, then by start or arrival."""
        running = snapshot.running_by_uid.get(gang.uid)
        served = device_seconds(gang, snapshot)
        is_demoted = served >= self._threshold
        queue = is_demoted
        if is_demoted and self._is_promoted(gang, running, snapshot.now):
            queue = served - gang.attained_seconds * devices(gang, snapshot) >= self._threshold
        place = SortKey((queue, *_since(gang, running)), -served, -float(is_demoted))
        return with_delay(place, gang, snapshot, self._delay_seconds)

    def _is_promoted(self, gang: Gang, running: RunningGang | None, now: float) -> bool:
        """Return whether it waited long enough before this start, or has so far."""
        until = now if running is None else running.started
        waited = until - gang.arrived - gang.attained_seconds
        return gang.attained_seconds > 0 and waited >= self._promote_knob * gang.attained_seconds


class TiresiasGittins(SortedOrderer):
    """Highest Gittins index of the attained service first (2D-Gittins).

    The score and the preemption priority are the index: the probability that a gang ends within the
    best further service, per million device-seconds of its expected duration.

    Source: Gu et al., Tiresias, NSDI'19, section 3.2; Gittins, J. R. Stat. Soc. B 41(2), 1979.
    """

    def __init__(
        self,
        samples: Sequence[float] | None = None,
        quantum_device_seconds: Annotated[
            float,
            Above(0),
            "service at which the index first changes, and then at its doubles; "
            "another one scales the published distribution",
        ] = _YARN_QUANTUM,
        levels: Annotated[
            int, Within(1, _MAX_LEVELS), "changes at most; beyond the last the index is 0"
        ] = _MAX_LEVELS,
        preemption_delay_seconds: _Delay = 0,
    ) -> None:
        """``samples`` are the whole service of past gangs, device-seconds; the default is the
        distribution that the paper's authors published.

        Samples are rounded up to the quantum or its doubles. The index is that at the last bound
        that
        was passed, so it changes only when service doubles. Service above the last of ``levels``
        counts
        as ending there.

        Raises:
            SettingError: a parameter is out of its range.
        """
        check_parameters(
            type(self),
            quantum_device_seconds=quantum_device_seconds,
            levels=levels,
            preemption_delay_seconds=preemption_delay_seconds,
        )
        if quantum_device_seconds == math.inf:
            raise SettingError("quantum_device_seconds is inf; use a finite number above 0")
        if samples is None:
            counts = np.array(_YARN_COUNTS, dtype=np.float64)
        else:
            counts = _histogram(samples, quantum_device_seconds)
        if len(counts) > levels:
            counts = np.append(counts[: levels - 1], counts[levels - 1 :].sum())
        bounds = quantum_device_seconds * np.exp2(np.arange(len(counts), dtype=np.float64))
        self._bounds: list[float] = bounds.tolist()
        self._indices = [*(gittins_indices(bounds, counts) * 1e6).tolist(), 0.0]
        self._delay_seconds = preemption_delay_seconds

    def sort_key(self, gang: Gang, snapshot: ClusterSnapshot) -> SortKey:
        """By index, running before waiting, then by start or arrival."""
        served = device_seconds(gang, snapshot)
        index = self._indices[bisect.bisect_right(self._bounds, served)]
        running = snapshot.running_by_uid.get(gang.uid)
        place = SortKey((-index, *_since(gang, running)), index, index)
        return with_delay(place, gang, snapshot, self._delay_seconds)


def gittins_indices(bounds: FloatArray, counts: FloatArray) -> FloatArray:
    """Return the index after each service of 0, ``bounds[0]``, ..., ``bounds[-2]``, (levels,).

        G(a) = sup_d P(S - a <= d | S > a) / E[min(S - a, d) | S > a]

    S is ``bounds[i]`` for ``counts[i]`` gangs; the supremum lies at one of these. Per second of
    ``bounds``. Tiresias (NSDI'19), section 3.2.
    """
    indices = np.zeros(len(bounds))
    for level, attained in enumerate(np.concatenate([[0.0], bounds[:-1]])):
        remaining, further = counts[level:], bounds[level:] - attained
        finished = remaining.cumsum()
        spent = (remaining * further).cumsum() + (finished[-1] - finished) * further
        if finished[-1] > 0:
            indices[level] = (finished / spent).max()
    return indices


def _histogram(samples: Sequence[float], quantum: float) -> FloatArray:
    """Return how many samples lie up to the quantum, up to its double, and so on."""
    values = np.asarray(samples, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not ((values > 0) & (values < math.inf)).all():
        raise SettingError(
            f"samples has {values.size} values, not all of them finite numbers above 0; "
            "give the device-seconds of at least one past gang"
        )
    levels = np.maximum(np.ceil(np.log2(values / quantum)), 0).astype(np.int64)
    if int(levels.max()) >= _MAX_LEVELS:
        raise SettingError(
            f"the largest of samples is {values.max():g}, quantum_device_seconds is {quantum:g}; "
            f"use a quantum of at least {values.max() / 2.0 ** (_MAX_LEVELS - 1):g}"
        )
    return np.bincount(levels).astype(np.float64)


def _since(gang: Gang, running: RunningGang | None) -> tuple[bool, float]:
    """Return the key for first started first, then waiting gangs by arrival."""
    # No start within a level stops another, so gangs do not stop each other without end.
    return (running is None, gang.arrived if running is None else running.started)
