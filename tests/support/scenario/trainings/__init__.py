"""Programs that train, for the pods of real nodes; each runs there by itself."""
