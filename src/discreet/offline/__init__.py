"""Learners from one release of a stored data set, and the simulated data sets that they are tried on."""
