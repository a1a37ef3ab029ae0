"""The index that orders real clusters: its network, the windows it learns from, its judgement."""
