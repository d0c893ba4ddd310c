"""The facade: opened tables, and the maintenance pass."""
