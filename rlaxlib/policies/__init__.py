"""Policies: which way to change what an agent does."""

from rlaxlib.policies import (
    _constraints,
    _distillation,
    _gradients,
    _improvement,
    _mpo,
    _parametric_mpo,
    _ppo,
    _ppo_penalty,
    _sac,
    _vmpo,
)
from rlaxlib.policies._constraints import *
from rlaxlib.policies._distillation import *
from rlaxlib.policies._gradients import *
from rlaxlib.policies._improvement import *
from rlaxlib.policies._mpo import *
from rlaxlib.policies._parametric_mpo import *
from rlaxlib.policies._ppo import *
from rlaxlib.policies._ppo_penalty import *
from rlaxlib.policies._sac import *
from rlaxlib.policies._vmpo import *

__all__: list[str] = []
__all__ += _sac.__all__
__all__ += _constraints.__all__
__all__ += _gradients.__all__
__all__ += _improvement.__all__
__all__ += _mpo.__all__
__all__ += _parametric_mpo.__all__
__all__ += _ppo_penalty.__all__
__all__ += _ppo.__all__
__all__ += _distillation.__all__
__all__ += _vmpo.__all__
