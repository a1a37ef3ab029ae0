"""Pages of docs/results/forecasting, from trials of ``bireme forecast compare``."""
