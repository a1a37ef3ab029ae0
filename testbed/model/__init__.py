"""Reference model of the scheduling core: a second, slow and obvious statement of its rules.

``cluster`` keeps a cluster in plain dictionaries, ``invariants`` states what must hold of every
decision on it, ``machine`` lets anything happen to it. ``oracles`` states in plain loops what the
core computes over arrays. None of it shares code with the core.
"""
