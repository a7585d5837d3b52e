"""Not there yet; importing it says what to use instead."""

from horovod._later import refuse

raise refuse("horovod.tensorflow.gradient_aggregation")
