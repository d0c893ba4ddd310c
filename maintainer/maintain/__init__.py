"""Planning and executing the maintenance of buckets, and deleting what became superfluous."""
