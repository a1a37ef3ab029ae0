"""Pages about learned policies: results beside their bars.

``python -m benchmarks.learning NAME RESULTS.json...`` reads what ``bireme evaluate --json`` wrote.
"""
