"""TapFinger: node pools that each choose a waiting job and how much of the pool it gets."""
