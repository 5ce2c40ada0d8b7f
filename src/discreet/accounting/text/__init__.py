"""Sentences and names in statements and files, built from numbers.

No number is ever read from a sentence. The numbers of a guarantee are rounded up, so no sentence states a
privacy loss below the true value.
"""
