"""A2cScheduler: DeepRM's env in batches, its rules, networks and recipes (Liang et al. 2019)."""
