"""The GRU of forecasts: a network, what it learns from, and how it becomes a checkpoint."""
