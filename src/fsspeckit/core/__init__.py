"""What is true for every engine. Imports neither duckdb nor pyspark."""
