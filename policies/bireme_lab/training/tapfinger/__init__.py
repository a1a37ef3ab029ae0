"""TapFinger: every node pool chooses a waiting job and the job's share of the pool."""
