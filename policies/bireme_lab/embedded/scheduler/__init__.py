"""kube-scheduler in miniature: its queue, its filters and scores, and extenders over HTTP."""
