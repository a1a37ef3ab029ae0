"""Scripts of requests, drawn by a seed: each is about one namespace and its own shared objects."""
