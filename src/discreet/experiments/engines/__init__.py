"""Engines that need extra packages: each module is imported only when its engine is opened."""
