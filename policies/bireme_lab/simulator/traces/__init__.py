"""Workloads for the simulator: readers of published traces, and seeded generators.

A reader never repairs a row silently. It keeps the row, counts a documented treatment in
``Trace.treatments``, or refuses it with file, line, field, value and remedy.
"""
