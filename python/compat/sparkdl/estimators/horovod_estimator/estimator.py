"""Not part of hora; importing it says what to use instead."""

from horovod._later import refuse

raise refuse("sparkdl.estimators.horovod_estimator.estimator")
