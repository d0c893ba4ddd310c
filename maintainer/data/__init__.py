"""Data files: key-value Parquet in and out, schema evolution, statistics, deletion-vector files."""
