"""A2cScheduler in DeepRM's environment, its baselines, networks and recipes (Liang et al. 2019)."""
