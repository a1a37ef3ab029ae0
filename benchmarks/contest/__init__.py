"""The page of the benchmark, from what ``bireme benchmark --json`` wrote."""
