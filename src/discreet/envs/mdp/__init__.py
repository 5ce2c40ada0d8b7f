"""Tabular MDPs, linear MDPs, exact planning, and compiled simulation of many users."""
