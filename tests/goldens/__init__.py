"""Goldens: what the library returned, for named cases, before it was rebuilt.

``cases.py`` declares the cases, ``recording.py`` says how a value is written down and when two are equal,
``goldens.json`` holds the values, one case a line. ``make goldens`` writes them.
"""
