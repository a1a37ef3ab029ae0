"""The GRU of forecasts: its network, training data and checkpoint."""
