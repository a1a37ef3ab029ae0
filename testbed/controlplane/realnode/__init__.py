"""A real node without Docker: containerd, kubelet, kube-proxy and CoreDNS beside the fake nodes.

All of it runs in one sandbox, which the kernel clears away. ``obstacle()`` says why a machine
cannot have one; ``Cluster.start(..., real_node=True)`` starts one.
"""
