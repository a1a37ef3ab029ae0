"""Leader terms of the operator against the fake API server, and helpers by kind of object."""
