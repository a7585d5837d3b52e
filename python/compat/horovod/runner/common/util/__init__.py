"""Small parts of the launcher that scripts import."""
