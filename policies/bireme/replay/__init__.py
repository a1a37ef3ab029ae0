"""Recorded cycles again: decisions and waits under other policies."""
