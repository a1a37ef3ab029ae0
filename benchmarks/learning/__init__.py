"""Pages about learned policies: what each reached beside its bars, and what was tried.

``python -m benchmarks.learning NAME RESULTS.json...`` writes ``docs/results/learning/NAME.md``
from what
``bireme evaluate --json`` wrote. The bars are in ``bars``, the words in ``prose/NAME.md``.
"""
