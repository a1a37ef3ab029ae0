"""Environments in which the right policy is known at once, to see whether algorithms learn at all.

``envs`` asks for what it shows; ``policies`` are the smallest networks that can answer;
``cartpole`` is the classic of the field, batched.
"""
