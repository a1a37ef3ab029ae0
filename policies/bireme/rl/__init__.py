"""Learned policies in service: checkpoints, encoders and policy components."""
