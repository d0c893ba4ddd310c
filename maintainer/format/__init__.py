"""Bytes to values and back, one file per format; pure functions that never touch a file."""
