"""Page docs/results/simulations/run-times.md: run times foretold, held against those of traces."""
