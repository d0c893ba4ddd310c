"""Keeps Apache Paimon primary-key tables compacted and fully indexed, without a JVM."""
