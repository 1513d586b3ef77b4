"""Value transforms, encodings of values as distributions over bins, and their inverses.

- Elementwise transforms: `signed_hyperbolic`, `signed_logp1` (symlog) and others.
- Two-hot encoding over evenly or unevenly spaced bins (MuZero, DreamerV3).
- Gaussian encoding over bins (HL-Gauss).
- `TxPair`, a transform with its inverse: predefined pairs such as `SIGNED_LOGP1_PAIR`,
  pairs with bins such as `twohot_pair`, and `compose_tx` to chain them.
"""

from rlaxlib.transforms._hl_gauss import *
from rlaxlib.transforms._pairs import *
from rlaxlib.transforms._squashing import *
from rlaxlib.transforms._two_hot import *
