"""Independent verifier of privacy statements, as one file of standard Python, with its test vectors.

``verify_statement.py`` imports nothing of this library. ``vectors.json`` contains values that every verifier
must compute.
"""
