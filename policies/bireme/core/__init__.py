"""Everything that decides: facts, then rules, then the cycle. Pure: no clock, randomness or I/O.

Read in this order: :mod:`~bireme.core.snapshot` (what a decision may depend on),
:mod:`~bireme.core.cycle` (how it is made), :mod:`~bireme.core.decision` (what comes out). The
operator and the simulator run exactly this code; they differ in who builds the snapshot and who
carries the decision out.
"""
