"""Import paths that spec 003 names. The code is in `fsspeckit.datasets`."""
