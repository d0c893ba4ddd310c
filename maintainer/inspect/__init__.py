"""What a table looks like: coverage, files, snapshots, verification and fitness. Nothing here changes anything."""
