"""Workloads by name: ``philly:FILE``, ``pai:FOLDER``, ``gen:poisson?jobs=1000&rate=30``.

A source is a format, a path and, after a question mark, options; the options of a format are the
keyword arguments of its reader, those of a generator all its arguments. A member of a tar archive
is named as if the archive were a folder: ``pollux:traces.tar.gz/workloads/workload-1.csv``.
"""

import inspect
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from bireme.core.errors import require
from bireme.core.options import check_name, read_options
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.traces import job_logs
from bireme_lab.simulator.traces.generators import adversarial, diurnal, gavel, poisson
from bireme_lab.simulator.traces.openb import read_openb
from bireme_lab.simulator.traces.pai import read_pai
from bireme_lab.simulator.traces.papers import a2c, das, rlpto, tapfinger
from bireme_lab.simulator.traces.pollux import read_pollux
from bireme_lab.simulator.workload import Trace

FORMATS: Final[Mapping[str, Callable[..., Trace]]] = {
    "acme": job_logs.read_acme,
    "helios": job_logs.read_helios,
    "muri": job_logs.read_muri,
    "openb": read_openb,
    "pai": read_pai,
    "philly": job_logs.read_philly,
    "pollux": read_pollux,
    "tiresias": job_logs.read_tiresias,
}
"""Readers by name of the format: a path, then options by keyword."""

GENERATORS: Final[Mapping[str, Callable[..., Trace]]] = {
    generator.__name__: generator
    for generator in (a2c, adversarial, das, diurnal, gavel, poisson, rlpto, tapfinger)
}
"""Generators by name; a source calls one ``gen:name``."""


def read_trace(source: str, *, gpus_per_node: int = 8, seed: int = 0) -> Trace:
    """Return the workload that ``source`` names; its name is the source without the folder.

    ``gpus_per_node`` cuts jobs into replicas that fit a node, ``seed`` draws generated ones. Only
    readers and generators with such an option get them; an option in ``source`` wins. Raises
    TraceError with the fault and the nearest valid name.
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
        generate = GENERATORS[check_name("generator", where, GENERATORS, TraceError)]
        return replace(generate(**_options(generate, query, general)), name=source)
    read = FORMATS[check_name("trace format", name, {**FORMATS, "gen": read_trace}, TraceError)]
    if not where:
        raise TraceError(f"{source!r} names no file; write {name}:FILE")
    trace = read(Path(where).expanduser(), **_options(read, query, general))
    return replace(trace, name=f"{name}:{trace.name}{'?' if query else ''}{query}")


def _options(
    function: Callable[..., Trace], query: str, general: Mapping[str, object]
) -> dict[str, object]:
    """Return the keyword arguments for ``function``; those of ``query`` win."""
    defaults = {
        parameter.name: parameter.default
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    options = {name: value for name, value in general.items() if name in defaults}
    return options | read_options(query, defaults, TraceError)


def window(trace: Trace, start_seconds: float = 0.0, limit: int | None = None) -> Trace:
    """Return at most ``limit`` jobs from ``start_seconds`` on, with times counted from there.

    Two windows in succession equal one window of their summed starts. Queues and nodes stay.
    Raises TraceError when ``start_seconds`` is negative or after the last job, or ``limit`` is
    below 1.
    """
    if limit is not None:
        require("limit", limit, 1, error=TraceError)
    first = bisect_left(trace.jobs, start_seconds, key=lambda job: job.submitted)
    jobs = trace.jobs[first:][:limit]
    if not start_seconds >= 0 or not jobs:
        last = trace.jobs[-1].submitted if trace.jobs else 0.0
        raise TraceError(
            f"start is {start_seconds:g} s; {trace.name} has jobs from 0 to {last:g} s"
        )
    if start_seconds > 0:
        jobs = tuple(replace(job, submitted=job.submitted - start_seconds) for job in jobs)
    return replace(trace, jobs=jobs)
