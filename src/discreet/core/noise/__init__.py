"""Noise: exact samplers (:mod:`.discrete_samplers`), and seeded streams (:mod:`.seeded_rng`)."""
