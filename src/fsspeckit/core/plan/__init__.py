"""Which files, which row groups: list, read footers, prune, scan keys."""
