"""What all framework modules of the Horovod surface share."""
