"""One module a paper: settings, sweep, and the claims that it checks."""
