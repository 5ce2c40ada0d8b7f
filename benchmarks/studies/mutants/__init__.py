"""Small faults are put into the trusted core, one by one, and the tests are to notice: ``make mutate``.

``python -m benchmarks.studies.mutants --out DIR --seed 1 --mutants 400`` needs ``pip install -e
'.[dev,mutate]'``. It

1. copies sources and tests to ``DIR/tree`` and compiles the kernels there;
2. runs the fast tests once to see which of them run which lines of the core (``DIR/covered.json``);
3. draws mutants, each file in proportion to the places where a fault can be put, and for each runs the tests
   that run its line: those of the module's own test file first, quick ones first, up to the first failure;
4. writes ``DIR/mutants.jsonl``, a line a mutant, and ``DIR/mutants.md``: a table by module, survivors.

A mutant whose module cannot be loaded tests no test: another is drawn in its place. A test that runs for ever
counts as a failure (``timeout``). A mutant that survives the tests of its line counts as a survivor, though
tests that were left out for time might kill it. Started again, the command goes on where it stopped.
"""
