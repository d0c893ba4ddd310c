"""Tables as directories of files: schema and options, snapshots, manifests, and the state of every bucket."""
