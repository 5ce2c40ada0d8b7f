"""Engines that are packages of their own: each module is imported only when its engine is asked for."""
