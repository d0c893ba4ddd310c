"""Bytes to values and back: one module per format, pure functions, no I/O."""
