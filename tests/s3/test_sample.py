"""A sample of the conformance suite on `s3://`; `make test-s3` runs all of it."""

from conformance.test_merge import *  # noqa: F403
