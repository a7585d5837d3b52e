"""What launcher and workers share."""
