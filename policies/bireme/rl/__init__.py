"""Learned policies as they are served: checkpoints, what networks see, and what they answer."""
