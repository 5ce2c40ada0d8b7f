"""Saved states of sessions: the file format, and what a session writes."""
