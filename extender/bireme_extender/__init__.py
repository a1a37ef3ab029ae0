"""The extender: the shell that answers a stock kube-scheduler."""
