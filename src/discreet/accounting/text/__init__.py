"""What is written for readers and files: sentences, names and plain tables, made from numbers.

Numbers are never read from sentences. Those of promises are rounded up: no sentence is below the truth.
"""
