"""Checked checkpoints and inference sessions, shared by learned policies and forecasts."""
