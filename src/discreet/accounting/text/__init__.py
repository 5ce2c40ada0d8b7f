"""Text for readers and files: sentences, names and plain tables, made from numbers.

Numbers are never read from sentences. Numbers of guarantees are rounded up: no sentence is below the true
value.
"""
