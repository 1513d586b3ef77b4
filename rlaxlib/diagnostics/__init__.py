"""Tell how learning goes: of values, of policies, of networks, and of the data.

None of these is a loss. What they measure is for a log, or for a decision such as to
stop early. Masks are true where an entry counts; over devices, an `axis_name` has the
entries of all of them count.
"""

from rlaxlib.diagnostics import _networks, _ratios, _trajectories, _values
from rlaxlib.diagnostics._networks import *
from rlaxlib.diagnostics._ratios import *
from rlaxlib.diagnostics._trajectories import *
from rlaxlib.diagnostics._values import *

__all__: list[str] = []
__all__ += _networks.__all__
__all__ += _ratios.__all__
__all__ += _trajectories.__all__
__all__ += _values.__all__
