"""Contests of policies: worlds, candidates, tuning on training worlds, verdicts on others."""
