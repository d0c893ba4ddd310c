"""Reading: predicates, index evaluation, scan planning and rows (spec 07). Writes nothing."""
