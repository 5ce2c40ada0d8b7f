"""The kernel: what the sentence "this release of counts has the printed epsilon" rests on.

It imports nothing of the rest of the library and may be read in one go (docs/kernel.md leads through it).
Every mechanism of counts is a value of it: query, strategy over time, noise, scales, and the loss that
follows.
"""
