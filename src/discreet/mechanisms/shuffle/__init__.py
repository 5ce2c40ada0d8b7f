"""Trusted: shuffler and analyzer, and what a shuffled batch costs."""
