"""RLPTO: giving nodes to training tasks as they converge, and what that is judged by."""
