"""Published speeds: Gavel's by GPU type and scale, ElasticFlow's by batch and GPUs.

The files are the publishers' own, named by path. Bireme ships none of them.

Gavel (Narayanan et al., OSDI 2020): ``simulation_throughputs.json`` or
``physical_cluster_throughputs.json`` of stanford-futuredata/gavel, steps a second by GPU type,
job and number of GPUs, alone on its GPUs. A GPU type ``X_unconsolidated`` is X with the GPUs on
different servers.

ElasticFlow (Gu et al., ASPLOS 2023): ``throughputs_A100/*.csv`` and ``throughputs_T4/*.csv`` of
pkusys/ElasticFlow, iterations a second, one row per global batch size, one column per number of
GPUs. An empty cell was not measured, a 0 did not run.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TypeVar

import numpy as np

from bireme.core.errors import nearest
from bireme.core.resources import FloatArray
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.physics.laws import MeasuredSpeed
from bireme_lab.simulator.traces.tables import open_text, read_header, read_table


def read_numbers(path: Path, columns: Sequence[str], *, may_be_blank: bool = False) -> FloatArray:
    """Read columns of a CSV file as numbers from 0 on, float64, shape (rows, columns).

    Blank cells are NaN if they may be. Raises TraceError naming file, line, column and value.
    """
    table = read_table(path, columns)
    if not len(table):
        raise TraceError(f"{path} has no rows below its header; fetch it again")
    numbers = np.array([table.numbers(name, may_be_blank=may_be_blank) for name in columns]).T
    for row, column in np.argwhere(numbers < 0):
        raise TraceError(
            f"{path}, line {table.lines[row]}: {columns[column]} is {numbers[row, column]}; "
            "it must be a number from 0 on"
        )
    return numbers


_UNCONSOLIDATED = "_unconsolidated"

Speeds = Mapping[int, float]
"""Steps a second by number of GPUs."""

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, eq=False)
class GavelTable:
    """Steps a second of a job alone: ``speeds[GPU type][job][GPUs]``."""

    speeds: Mapping[str, Mapping[str, Speeds]]

    @classmethod
    def load(cls, path: Path) -> "GavelTable":
        """Read one of Gavel's throughput files, gzipped or not."""
        try:
            with open_text(path) as text:
                document: dict[str, dict[str, dict[str, float]]] = json.load(text)
        except json.JSONDecodeError as error:
            raise TraceError(f"{path} is no JSON document ({error}); fetch it again") from error
        try:
            speeds = {gpu: _alone(by_key) for gpu, by_key in document.items()}
        except (AttributeError, KeyError, TypeError, ValueError, SyntaxError) as error:
            raise TraceError(
                f'{path} is not of the form GPU type, "(\'job\', GPUs)", "null", speed '
                f"({error!r}); give one of Gavel's throughput files"
            ) from error
        return cls(speeds)

    def jobs(self, gpu: str, gpus: int) -> list[str]:
        """Return the jobs measured on ``gpus`` GPUs of type ``gpu``; TraceError for none."""
        by_job = _look_up(self.speeds, gpu, "GPU type")
        if names := [name for name, speeds in by_job.items() if speeds.get(gpus, 0.0) > 0]:
            return names
        raise TraceError(f"no job was measured on {gpus} GPUs of type {gpu}; leave that size out")

    def speed(self, job: str, gpu: str, gpus_per_node: int = 8) -> MeasuredSpeed:
        """Return the law of ``job`` ("LSTM (batch size 5)") on GPUs of type ``gpu`` ("v100")."""
        by_job = _look_up(self.speeds, gpu, "GPU type")
        together = _look_up(by_job, job, f"job on {gpu}")
        unconsolidated = {**together, **self.speeds.get(gpu + _UNCONSOLIDATED, {}).get(job, {})}
        gpus = tuple(sorted(together))
        packed_speeds, spread_speeds = (
            tuple(speeds[n] for n in gpus) for speeds in (together, unconsolidated)
        )
        return MeasuredSpeed(gpus, packed_speeds, spread_speeds, gpus_per_node)


def _alone(by_key: Mapping[str, Mapping[str, float]]) -> dict[str, dict[int, float]]:
    speeds: dict[str, dict[int, float]] = {}
    for key, by_partner in by_key.items():
        job, gpus = ast.literal_eval(key)
        speeds.setdefault(job, {})[int(gpus)] = float(by_partner["null"])
    return speeds


@dataclass(frozen=True, slots=True, eq=False)
class ElasticFlowTable:
    """Iterations a second of one model: ``speeds[global batch size][GPUs]``."""

    speeds: Mapping[int, Speeds]

    @classmethod
    def load(cls, path: Path) -> "ElasticFlowTable":
        """Read one model's file."""
        header = read_header(path)
        if header[0] != "global_batch_size" or not all(name.isdecimal() for name in header[1:]):
            raise TraceError(
                f"{path} has the header {header}; it must be global_batch_size and numbers of GPUs"
            )
        gpus = [int(name) for name in header[1:]]
        speeds = {}
        for batch, *row in read_numbers(path, header, may_be_blank=True).tolist():
            by_gpus = zip(gpus, row, strict=True)
            speeds[int(batch)] = {count: speed for count, speed in by_gpus if not isnan(speed)}
        return cls(speeds)

    def speed(self, batch: int) -> MeasuredSpeed:
        """Return the law at the measured global batch size ``batch``."""
        by_gpus = _look_up(self.speeds, batch, "batch size")
        gpus = tuple(sorted(by_gpus))
        return MeasuredSpeed(gpus, tuple(by_gpus[n] for n in gpus))


def _look_up(table: Mapping[Key, Value], key: Key, what: str) -> Value:
    if key not in table:
        raise TraceError(f"no {what} {key!r} was measured; {nearest(str(key), map(str, table))}")
    return table[key]
