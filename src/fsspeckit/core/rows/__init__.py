"""The rows of the source as Arrow parts."""
