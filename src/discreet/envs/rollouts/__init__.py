"""Simulated users: exact joint distribution of many users, and flat arrays for the fused driver."""
