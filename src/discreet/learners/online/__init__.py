"""Learners that choose the next users' policy from releases alone."""
