"""Noise: exact discrete samplers (:mod:`.exact`), and seeded streams for simulation (:mod:`.seeds`)."""
