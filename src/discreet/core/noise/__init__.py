"""Noise: its law (:mod:`.laws`) and its exact discrete samplers (:mod:`.exact`)."""
