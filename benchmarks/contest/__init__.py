"""The page of the benchmark, from what ``python -m bireme.contest --json`` wrote."""
