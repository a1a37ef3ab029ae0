"""Encoders of the policies of research, by which networks see gangs and nodes."""
