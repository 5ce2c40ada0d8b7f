"""Privacy losses beyond closed forms: numerical losses, conversions, filters. No code here reads data."""
