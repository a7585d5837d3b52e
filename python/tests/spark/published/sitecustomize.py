"""Every Python that has this folder on its path, Spark's workers too, gets what the tests' time had: workers import the
tests' files."""

import published_names  # noqa: F401
