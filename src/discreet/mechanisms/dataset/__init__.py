"""One-shot releases of offline data, from one table or from partial aggregates."""
