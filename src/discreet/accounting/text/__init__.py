"""Text for readers and files: sentences, names and plain tables, made from numbers.

Numbers are never read from sentences. Numbers of guarantees are rounded up, so no sentence states less than
the true value.
"""
