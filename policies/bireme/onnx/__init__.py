"""Checkpoint files and inference sessions, shared by learned policies and forecasters."""
