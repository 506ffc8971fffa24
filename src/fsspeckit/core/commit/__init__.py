"""Commit all changes or none: staging, journal, lock, recovery."""
