"""The daemon: configuration, discovery, watching and the loop that maintains many tables at once (DESIGN §4 `service`)."""
