"""Simulated users: draws from the exact joint distribution of many users, and arrays for the fused driver."""
