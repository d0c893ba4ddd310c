"""Primary-key indexes: what a schema defines, which payloads are valid, and the families that build and read them."""
