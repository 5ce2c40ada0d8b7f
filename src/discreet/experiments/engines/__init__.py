"""Engines that need additional packages. Each module is imported only when its engine is opened."""
