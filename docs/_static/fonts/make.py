"""Make `manual-math.woff2` from Latin Modern Math, whose name its licence reserves.

    pip install fonttools brotli
    python docs/_static/fonts/make.py latinmodern-math.otf

Browsers lower an index below the depth of its letter, so that those of γ and ρ would
stand lower than those of δ. TeX does not; here a smaller constant of the font does it.
"""

import sys
from pathlib import Path

from fontTools.ttLib import TTFont

font = TTFont(sys.argv[1])
font["MATH"].table.MathConstants.SubscriptBaselineDropMin.Value = 0
for record in font["name"].names:
    if record.nameID in (1, 4, 6, 16):
        record.string = "ManualMath"
font.flavor = "woff2"
font.save(Path(__file__).parent / "manual-math.woff2")
