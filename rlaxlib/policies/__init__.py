"""Policies: which way to change what an agent does."""

from rlaxlib.policies import (
    _actor_critic,
    _constraints,
    _gaussian_mpo,
    _gradients,
    _mpo,
    _penalties,
    _proximal,
    _search,
    _targets,
    _vmpo,
)
from rlaxlib.policies._actor_critic import *
from rlaxlib.policies._constraints import *
from rlaxlib.policies._gaussian_mpo import *
from rlaxlib.policies._gradients import *
from rlaxlib.policies._mpo import *
from rlaxlib.policies._penalties import *
from rlaxlib.policies._proximal import *
from rlaxlib.policies._search import *
from rlaxlib.policies._targets import *
from rlaxlib.policies._vmpo import *

__all__: list[str] = []
__all__ += _actor_critic.__all__
__all__ += _constraints.__all__
__all__ += _gradients.__all__
__all__ += _search.__all__
__all__ += _mpo.__all__
__all__ += _gaussian_mpo.__all__
__all__ += _penalties.__all__
__all__ += _proximal.__all__
__all__ += _targets.__all__
__all__ += _vmpo.__all__
