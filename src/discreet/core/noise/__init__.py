"""Noise from exact samplers (:mod:`.discrete_samplers`) and from seeded streams (:mod:`.seeded_rng`)."""
