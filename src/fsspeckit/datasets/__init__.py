"""The engines, each with its `DatasetIO`."""
