"""The page of the gate, from what ``bireme benchmark --json`` wrote."""
