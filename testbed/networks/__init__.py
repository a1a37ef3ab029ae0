"""Checkpoints small enough to be made in a test, and wrong in one thing where a test wants that."""
