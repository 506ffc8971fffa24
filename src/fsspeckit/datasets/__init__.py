"""What users hold: one `DatasetIO` per engine."""
