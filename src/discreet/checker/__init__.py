"""Independent verifiers of privacy statements, with their test vectors.

``verify_statement.py`` is one file of standard Python, and ``verify_statement.html`` is a page for browsers
that works offline. Neither of them imports this library. ``vectors.json`` has values that every verifier must
compute.
"""
