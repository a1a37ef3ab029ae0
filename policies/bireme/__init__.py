"""Bireme: learned gang scheduling for distributed training jobs on Kubernetes."""
