"""Publishers' measurements as arrays: CSV and JSON, plain, gzipped or in an archive.

Reading itself, and what is said about a damaged file, is that of
:mod:`bireme.simulator.traces.tables`.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bireme.core.resources import FloatArray
from bireme.simulator.errors import TraceError
from bireme.simulator.traces.tables import open_text, read_table


def read_json(path: Path) -> object:
    """The JSON document in ``path``; TraceError when it is none."""
    with open_text(path) as text:
        try:
            return json.load(text)
        except json.JSONDecodeError as error:
            raise TraceError(f"{path} is no JSON document ({error}); fetch it again") from error


def read_numbers(path: Path, columns: Sequence[str], *, may_be_blank: bool = False) -> FloatArray:
    """Columns of a CSV file as numbers from 0 on, float64, shape (rows, columns).

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
