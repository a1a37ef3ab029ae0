"""A whole cluster in one thread, with made-up time and seeded chance: the seed is the replay.

Real are the operator, the extender's cache and verbs, and their HTTP client down to the fence
before every write. Models are the network, the API server, kube-scheduler, kubelets, controllers
and users. Faults strike at seeded moments; then they stop, and everything that can run has to.

    python -m testbed.simcluster --seeds 0:1000
    python -m testbed.simcluster --seeds 17 --story
"""
