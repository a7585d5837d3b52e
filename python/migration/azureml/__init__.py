"""The names of Azure Machine Learning's first SDK, on a server of hora: `hora up` in one terminal, the script in
another.

A workspace is a project of the server, an experiment a tag of its jobs, a run a job. The page docs/azureml.md tells
what is different.
"""

from ._absent import absent as _absent
from ._absent import refuse_the_rest as _refuse_the_rest
from ._named import name_arguments as _name_arguments
from ._refuse import alone as _alone

_alone()
_refuse_the_rest()
_name_arguments()

__getattr__ = _absent(__name__)

__version__ = "1.0"
