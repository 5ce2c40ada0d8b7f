"""Flower app that learns one policy for several hospitals without sharing their data.

It has a server part, which runs at the analyst, and a client part, which runs at each hospital.
"""
