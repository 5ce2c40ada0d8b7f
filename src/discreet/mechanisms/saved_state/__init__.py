"""Saved states of sessions: the file format, and the contents that a session writes."""
