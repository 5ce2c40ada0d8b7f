"""Noise distributions of releases, as functions of public numbers.

An error here can mislead a learner but cannot reveal data.
"""
