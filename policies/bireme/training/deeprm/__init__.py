"""A2cScheduler: DeepRM's world in batches, its rules, networks and recipes (Liang et al. 2019)."""
