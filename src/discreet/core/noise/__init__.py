"""Noise as a value (:mod:`.noises`), and its exact samplers (:mod:`.discrete_samplers`)."""
