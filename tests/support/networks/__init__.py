"""Checkpoints small enough to be made in a test, and wrong in one thing where a test wants that.

``encoders`` shows networks three facts of gangs and of nodes; ``graphs`` writes a weighted sum of
facts as ONNX; ``checkpoints`` writes folders that Bireme loads.
"""
