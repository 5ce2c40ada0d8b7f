"""Noise distributions for readers of a release: functions of public numbers.

An error here can mislead a learner but cannot reveal data.
"""
