"""Workloads for the simulator: readers of published traces, and seeded generators.

One module per publisher's format, read as the publisher ships it (plain, gzipped, in a tar
archive). Nothing is repaired in silence: a row is kept, met with a documented treatment that is
counted in ``Trace.treatments``, or refused with the file, the line, the field, the value and the
remedy. :func:`bireme.simulator.traces.sources.read_trace` is the way in.
"""
