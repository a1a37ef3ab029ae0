"""Workloads by name: ``philly:FILE``, ``pai:FOLDER``, ``gen:poisson?jobs=1000&rate=30``.

A source is a format, a path and, after a question mark, options; the options of a format are the
keyword arguments of its reader, those of a generator all its arguments. A member of a tar archive
is named as if the archive were a folder: ``pollux:traces.tar.gz/workloads/workload-1.csv``.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from bireme.simulator.errors import TraceError
from bireme.simulator.traces.acme import read_acme
from bireme.simulator.traces.generators import adversarial, diurnal, poisson
from bireme.simulator.traces.helios import read_helios
from bireme.simulator.traces.openb import read_openb
from bireme.simulator.traces.pai import read_pai
from bireme.simulator.traces.papers import a2c, das, rlpto, tapfinger
from bireme.simulator.traces.philly import read_philly
from bireme.simulator.traces.pollux import read_pollux
from bireme.simulator.traces.tiresias import read_muri, read_tiresias
from bireme.simulator.workload import Trace

FORMATS: Final[Mapping[str, Callable[..., Trace]]] = {
    "acme": read_acme,
    "helios": read_helios,
    "muri": read_muri,
    "openb": read_openb,
    "pai": read_pai,
    "philly": read_philly,
    "pollux": read_pollux,
    "tiresias": read_tiresias,
}
"""Format name to its reader: a path, then options by keyword."""

GENERATORS: Final[Mapping[str, Callable[..., Trace]]] = {
    "a2c": a2c,
    "adversarial": adversarial,
    "das": das,
    "diurnal": diurnal,
    "poisson": poisson,
    "rlpto": rlpto,
    "tapfinger": tapfinger,
}
"""Generator name to its function, called ``gen:name``."""


def read_trace(source: str, *, gpus_per_node: int = 8, seed: int = 0) -> Trace:
    """The workload that ``source`` names.

    ``gpus_per_node`` cuts jobs into replicas that fit a node, ``seed`` draws generated ones; both
    reach the readers and generators that have a use for them, and an option in ``source`` wins.
    The trace is called as its source, without the folder.
    Raises TraceError naming what is wrong and the nearest name that would have been right.
    """
    name, colon, rest = source.partition(":")
    if not colon:
        raise TraceError(
            f"{source!r} names no format; write FORMAT:FILE with one of {', '.join(FORMATS)}, or "
            f"gen:NAME with one of {', '.join(GENERATORS)}"
        )
    where, _, query = rest.partition("?")
    general: dict[str, object] = {"gpus_per_node": gpus_per_node, "seed": seed}
    if name == "gen":
        generate = GENERATORS[_known("generator", where, GENERATORS)]
        return replace(generate(**_options(generate, query, general)), name=source)
    read = FORMATS[_known("trace format", name, {**FORMATS, "gen": read_trace})]
    if not where:
        raise TraceError(f"{source!r} names no file; write {name}:FILE")
    trace = read(Path(where).expanduser(), **_options(read, query, general))
    return replace(trace, name=f"{name}:{trace.name}{'?' if query else ''}{query}")


def _known(kind: str, name: str, known: Mapping[str, object]) -> str:
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
    raise TraceError(f"no {kind} is called {name!r}; {hint}")


def _options(
    function: Callable[..., Trace], query: str, general: Mapping[str, object]
) -> dict[str, object]:
    """Keyword arguments for ``function``: the general ones it has, then those of ``query``."""
    defaults = {
        parameter.name: parameter.default
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    options = {name: value for name, value in general.items() if name in defaults}
    for name, text in parse_qsl(query, keep_blank_values=True):
        options[name] = _value(name, text, defaults[_known("option", name, defaults)])
    return options


def _value(name: str, text: str, default: object) -> object:
    """``text`` as a value of the type that ``default`` has."""
    if isinstance(default, str):
        return text
    try:
        number = int(text) if isinstance(default, int) else float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise TraceError(f"{name} is {text!r}; it must be {kind}")
    return number
