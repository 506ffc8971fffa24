"""Make it so, or leave no trace: staging, journal, lock, recovery."""
