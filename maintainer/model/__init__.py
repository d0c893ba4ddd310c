"""Frozen values that the other rooms speak in; no behaviour with I/O."""
