"""Offline learners: policies from stored trajectories, private or not."""
