"""Trusted kernel: the code that the stated epsilon of a release of counts depends on.

It imports nothing from the rest of the library, so it can be read separately (guide: docs/kernel.md). A
mechanism of counts is a value that combines a query, a noise strategy, a noise distribution and scales. These
four parts determine its privacy loss.
"""
