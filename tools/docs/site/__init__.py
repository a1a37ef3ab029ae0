"""What the documentation's site needs beside MkDocs; ``mkdocs.yml`` names it as a hook."""
