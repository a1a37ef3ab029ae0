"""Event-driven simulation of a cluster that runs the same scheduling cycle as the operator."""
