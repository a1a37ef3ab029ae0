"""Recorded cycles again: what other policies would have decided, whose waits would change."""
