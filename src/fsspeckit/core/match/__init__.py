"""Which rows of the target have a key of the source."""
