"""Offline learners: they compute a policy from stored trajectories, with or without privacy."""
