"""What is there: files, footers, partitions. Read with suspicion, and never written."""
