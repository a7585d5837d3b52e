"""Errors that a program may catch."""


class NoDataAvailableError(Exception):
    """There is nothing to read for this reader."""
