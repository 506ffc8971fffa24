"""Plans, results and inspections as terminal text, HTML and JSON."""
