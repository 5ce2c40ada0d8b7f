"""Tabular and linear MDPs, exact planning, and compiled simulation of many users."""
