"""A real Kubernetes control plane without Docker, for tests, the demo and benchmarks.

``build`` compiles etcd, the Kubernetes binaries, kwok and helm once from the Go module proxy into a
cache. ``Cluster`` starts them on free loopback ports in seconds, with fake nodes. ``BiremeStack``
runs Bireme's own three programs. Where Linux and root allow it, ``realnode`` adds a real node.
"""
