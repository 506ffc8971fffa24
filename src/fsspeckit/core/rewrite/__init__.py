"""Write new files: rewrite the files that change, and insert new rows."""
