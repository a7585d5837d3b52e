"""Where HorovodEstimator was."""
