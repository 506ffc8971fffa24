"""What values are: arrays, keys, equality, order, schemas. No file is opened here."""
