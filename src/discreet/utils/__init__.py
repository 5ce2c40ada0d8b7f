"""Helpers without domain words: configuration, atomic files, plot style, tables."""
