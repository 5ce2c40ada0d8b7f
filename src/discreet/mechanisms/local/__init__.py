"""Trusted: what sums of randomized reports and of noise on devices mean, and what a report costs."""
