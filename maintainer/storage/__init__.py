"""Where bytes live: stores, and the layout of a table's directory."""
