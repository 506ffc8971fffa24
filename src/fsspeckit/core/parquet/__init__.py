"""The Parquet file format: footers, column chunks, statistics, splicing and writing. Nothing here knows of merges."""
