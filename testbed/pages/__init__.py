"""Pages of the documentation as programs: their blocks, a shell that runs them, a comparison."""
