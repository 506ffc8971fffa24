"""The source's rows as Arrow batches that read the same twice, and the ways they are found and brought to their files.

Rows never enter a foreign type system: every engine spools them in the shape's plain types, with their canonical keys
beside them, and everything that is done with rows is done here.
"""
