"""The families that can be built and read; one module each, found by name (DESIGN §4, rule 3)."""
