"""Records of operators played again: decision by decision, and as workloads for the simulator."""
