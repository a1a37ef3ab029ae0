"""RLPTO: workers for training tasks as they converge (Lu et al., IEEE TPDS 2023)."""
