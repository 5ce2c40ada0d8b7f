"""One release from a stored dataset, from one table or from partial aggregates."""
