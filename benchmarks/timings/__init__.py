"""Measurements behind ``docs/results``: ``python -m benchmarks.timings [names...] [--quick]``.

A rival is measured in the same run, on the same cluster, in alternation, because times on a shared
machine mean little and ratios mean a lot. Every case stands alone.
"""
