"""The target as it is: its files, partitions, footers and unified schema."""
