"""Noise distributions (:mod:`.noises`) and their exact samplers (:mod:`.discrete_samplers`)."""
