"""A real node without Docker: containerd, kubelet, kube-proxy and CoreDNS beside the fake nodes.

All of it runs in one sandbox, with processes, mounts and a network of its own, so that nothing of
the machine is touched and the kernel clears it away. ``obstacle()`` says why a machine cannot have
one; ``Cluster.start(..., real_node=True)`` starts one.
"""
