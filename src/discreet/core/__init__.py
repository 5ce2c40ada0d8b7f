"""Trusted kernel: the code that determines the epsilon of every release of counts.

The kernel imports nothing from the rest of the library, so a reviewer can read it separately (guide:
docs/kernel.md). A mechanism of counts is an immutable object with four parts: a query, a noise strategy, a
noise distribution and noise scales. These four parts determine its privacy loss.
"""
