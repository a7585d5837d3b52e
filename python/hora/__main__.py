"""`python -m hora …` is the program `hora …`."""

from __future__ import annotations

import os
import sys

from ._run import program

os.execv(program(), ["hora", *sys.argv[1:]])
