"""Noise distributions of releases, as functions of public numbers.

Noise distributions do not affect privacy: an error in this package can mislead a learner but cannot reveal
data.
"""
