"""A real Kubernetes control plane without Docker, for tests, the demo and benchmarks.

``build`` compiles etcd, the Kubernetes binaries, kwok and helm once from the Go module proxy into a
cache. ``Cluster`` starts them on free loopback ports in seconds, with fake nodes that behave as
``manifests/kwok/stages.yaml`` says. ``BiremeStack`` runs Bireme's own three programs against it.
Where Linux and root allow it, ``realnode`` adds a node whose pods are real.
On the command line: ``python -m tools.controlplane build|up|down|list``.
"""
