"""One release of offline data, from one table or from partial aggregates."""
