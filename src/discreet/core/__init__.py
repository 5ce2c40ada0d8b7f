"""Trusted kernel: the stated epsilon of a release of counts depends only on this code.

The kernel imports nothing from the rest of the library, so it can be read separately (guide: docs/kernel.md).
A mechanism of counts is a value that combines a query, a noise strategy, a noise distribution and noise
scales. These four parts determine its privacy loss.
"""
