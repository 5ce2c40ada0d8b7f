"""Simulated crowds: what so many people of one policy send to a session, drawn from its exact joint law."""
