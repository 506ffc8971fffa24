"""New files: the files that change are rewritten, and new rows are inserted into new ones."""
