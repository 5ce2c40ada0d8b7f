"""Privacy losses beyond closed forms: numerical ones, conversions, filters. Nothing here sees data."""
