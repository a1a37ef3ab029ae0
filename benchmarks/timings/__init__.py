"""Measurements behind ``docs/results``: ``python -m benchmarks.timings [names...] [--quick]``.

Whatever has a rival is measured beside it in the same run, on the same cluster, in alternation,
because times on a shared machine mean little and ratios mean a lot. Every case stands alone: its
own cluster, its own processes, its own files of results.
"""
