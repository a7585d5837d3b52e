"""Services that the processes of a job, and those of another, reach over the network."""
