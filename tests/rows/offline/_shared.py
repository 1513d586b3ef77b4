"""Definitions and arguments that rows of `offline` share."""

import functools

from row import Peer, Row

SAMPLES, DIMENSIONS, CRITICS, BATCH = 5, 3, 4, 8


# --- Arguments. ---


row = functools.partial(Row, peer=Peer(why_not="rlax has none"))


TEMPERATURE = ({"temperature": 0.0}, {"temperature": -1.0})
