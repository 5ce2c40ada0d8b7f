"""Estimation of a model from a release, with bounds on the effect of noise."""
