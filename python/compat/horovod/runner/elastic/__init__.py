"""The worker's side of elastic jobs."""
