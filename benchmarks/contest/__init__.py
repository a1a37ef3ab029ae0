"""The page of the benchmark, from what ``python -m bireme_lab.contest --json`` wrote."""
