"""The writer: rows to level-0 files of their buckets."""
