"""Merging sorted runs, a column at a time; no I/O: what reads rows is handed in."""
