"""Workloads for the simulator: readers of published traces, and seeded generators.

Nothing is repaired in silence: a row is kept, met with a documented treatment that is counted in
``Trace.treatments``, or refused with the file, the line, the field, the value and the remedy.
"""
