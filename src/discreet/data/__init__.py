"""Files of trajectories: the public schema, readers, row checks, exact counts, writers. Sees raw data."""
