"""Files of trajectories: public schema, readers, row checks, exact counts, writers. Reads raw data."""
