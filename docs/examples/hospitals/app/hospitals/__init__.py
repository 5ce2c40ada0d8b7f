"""One policy from hospitals that do not share data: what runs at the analyst's and at each hospital."""
