"""Helpers that are independent of reinforcement learning: options, atomic files, plot style, text tables."""
