"""A hook of MkDocs for the documentation's site; ``mkdocs.yml`` names it."""
