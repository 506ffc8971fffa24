"""Values: arrays, keys, equality, types and schemas. No file is opened here."""
