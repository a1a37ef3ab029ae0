"""RLPTO: moves workers between tasks as they converge (Lu et al., IEEE TPDS 2023)."""
