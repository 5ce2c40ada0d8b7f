"""Engines that need additional packages."""
