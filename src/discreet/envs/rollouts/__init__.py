"""Simulated people: the exact law of a crowd, and sessions as flat arrays for the fused driver."""
