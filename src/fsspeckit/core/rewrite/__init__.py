"""New bytes: a file's layout, the kernel that merges rows into it, and the one writer."""
