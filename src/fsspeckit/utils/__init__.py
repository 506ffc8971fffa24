"""The import paths of spec 003. The code is in `fsspeckit.datasets`."""
