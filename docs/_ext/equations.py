"""Turn equations, as they stand in docstrings, into LaTeX.

In docstrings they are plain text, since `help()` shows them as they are written:

    Â_t = δ_t + γ_{t+1} λ Â_{t+1},   δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t

- Each line is an equation, or several with three spaces between them. A line that is
  indented more than the first goes on with the one above.
- `x_t`, `x_{t+1}`, `x^n` and `x²` are indices and powers, `√x` and `√(x + 1)` roots.
- `a / b` is a fraction. Above and below is what stands next to the slash without a
  space, so that sums need parentheses, which are not shown: `(a + b) / 2`. Below, a `∑`
  takes all up to the next operator. `a/b` has a slash.
- A fraction alone in parentheses is shown without them, as in `(1/n) ∑_i x_i`, if they
  do not hold the arguments of a function, as in `f(a/b)`.
- `1[x > 0]` is an indicator, `E[x]` an expectation, and `π(a | s)` has a condition.
- Words are names of functions if `SIGNS` has them, or if they have indices or
  arguments. Others are text.
- A brace and a space open cases, each with a line, its condition after three spaces,
  and what holds of all at the end:

      |x| = { x    if x ≥ 0
            { -x   otherwise,   x ∈ ℝ
"""

import itertools
import re
import textwrap
import unicodedata
from typing import NamedTuple

SIGNS = {  # The LaTeX of words and signs, by the kind of the part that they are.
    "operator": {sign: sign for sign in (*"=<>+-,;.:", ":=")}
    | {"≤": r"\le", "≥": r"\ge", "≠": r"\ne", "≈": r"\approx", "∝": r"\propto"}
    | {"~": r"\sim", "∈": r"\in", "∋": r"\ni", "⊆": r"\subseteq", "mod": r"\bmod"}
    | {"←": r"\leftarrow", "⇒": r"\Rightarrow", "|": r"\mid", "‖": r"\,\|\,"}
    | {"·": r"\cdot"},
    "factor": {"∂": r"\partial", "∇": r"\nabla", "¬": r"\neg", "½": r"\tfrac12"}
    | {"…": r"\dots", "⋯": r"\cdots", "ℓ": r"\ell", "ℝ": "ℝ", "*": "*"}
    | {"∞": r"\infty", "Normal": r"\mathcal{N}"},
    "large": {"∑": r"\sum", "∏": r"\prod", "∫": r"\int", "⋃": r"\bigcup"},
    "function": {x: rf"\{x}" for x in ("cos", "exp", "log", "max", "min", "tanh")}
    | {x: rf"\operatorname{{{x}}}" for x in ("KL", "arsinh", "logsumexp")}
    | {"argmax": r"\operatorname*{argmax}", "sinh": r"\sinh"},
    "slash": {"/": "/"},
    "script": {"_": "_", "^": "^"},
    "root": {"√": r"\sqrt"},
}
PAIRS = {"(": ")", "[": "]", "{": "}", "|": "|", "‖": "‖", "⌊": "⌋"}
IN_TEX = {"{": r"\{", "}": r"\}", "‖": r"\|", "⌊": r"\lfloor", "⌋": r"\rfloor"}
BARS, CLOSING = {"|", "‖"}, {")", "]", "}", "⌋"}
RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀ", [*"0123456789+-", r"\top"], strict=True))
STRUCK = {"1": "𝟙", "E": "𝔼"}
ACCENTS = {"\u0302": "hat", "\u0303": "tilde", "\u0304": "bar"}
TOKEN = re.compile(
    r"(?P<space>\s*)(?:`(?P<texttt>[^`]+)`|(?P<struck>1(?=\[)|E(?=[\[_]))|"
    r"(?P<number>\d+(?:\.\d+)?)|(?P<index>[_^][A-Za-z]{2,}(?:_[A-Za-z]{2,})*)|"
    r"(?P<operatorname>[A-Za-z]{2,}(?=[(\[_]))|(?P<text>[A-Za-z]{2,})|"
    rf"(?P<raised>[{''.join(RAISED)}]+)|"
    rf"(?P<letter>[^\W\d_][{''.join(ACCENTS)}]?'*)|(?P<sign>:=|.))"
)


class Part(NamedTuple):
    """A part of an equation."""

    tex: str
    kind: str  # That of `SIGNS`, or "group", "index", "text".
    spaced: bool = False  # Whether a space stands before it.

    @property
    def bare(self):
        """Return the LaTeX without the parentheses about all of it."""
        match = re.fullmatch(r"(?:\\left)?\( (.*) (?:\\right)?\)", self.tex)
        return match[1] if match and self.kind == "group" else self.tex


def to_tex(text):
    r"""Return LaTeX for a block: a blank line between lines, and `\qquad` in them."""
    text = re.sub(r"\n +\{ ", "\n{ ", textwrap.dedent(text).strip())
    text = re.sub(r"\n +", " ", text)
    return "\n\n".join(map(_line, re.split(r"\n+(?!\{ )", text)))


def _line(line):
    first, *rest = line.split("\n{ ")
    if not rest:
        return _side_by_side(line)
    before, _, value = first.rpartition("{ ")
    cases = [re.split(" {3,}", case, maxsplit=2) for case in (value, *rest)]
    # A row that begins with a bracket would be read as an option without the braces.
    rows = r" \\ {} ".join(" & ".join(map(to_inline_tex, case[:2])) for case in cases)
    rows = rows.replace(r"\frac", r"\dfrac")
    tex = rf"{to_inline_tex(before)} \begin{{cases}} {{}} {rows} \end{{cases}}"
    return r" \qquad ".join([tex, *map(_side_by_side, cases[-1][2:])])


def _side_by_side(text):
    return r" \qquad ".join(map(to_inline_tex, re.split(" {3,}", text)))


def to_inline_tex(text):
    """Return LaTeX for what stands in a line of text."""
    text = unicodedata.normalize("NFC", " ".join(text.split()))
    outer, parts, opening = [], [], None  # What surrounds an open group, and its parts.
    for token in TOKEN.finditer(text):
        sign, after = token["sign"], text[token.end() :]
        apart = sign in BARS and token["space"] and after.startswith(" ")
        if sign in CLOSING or (sign in BARS and not apart and opening == sign):
            if opening is None:
                raise ValueError(f"{text}: {sign!r} closes nothing.")
            (before, opening_before, spaced), inner = outer.pop(), parts
            group = _group(inner, opening, sign, not spaced and before, after)
            _append(before, group._replace(spaced=spaced))
            parts, opening = before, opening_before
        elif sign in PAIRS and not apart:
            outer.append((parts, opening, bool(token["space"])))
            parts, opening = [], sign
        else:
            _append(parts, _part(token))
    if opening:
        raise ValueError(f"{text}: {opening!r} is not closed.")
    return _joined(_with_fractions(parts))


def _part(token):
    kind, spaced = token.lastgroup, bool(token["space"])
    text = token[kind]
    for sign, signs in SIGNS.items():
        if text in signs:
            return Part(signs[text], sign, spaced)
    if kind == "sign":
        raise ValueError(f"{token.string}: {text!r} has no meaning here.")
    if kind == "index":
        word = text[1:].replace("_", r"\_")
        return Part(rf"{text[0]}{{\text{{{word}}}}}", kind)
    if kind == "raised":
        return Part(f"^{{{''.join(RAISED[sign] for sign in text)}}}", "index")
    if kind in {"number", "struck"}:
        text = STRUCK[text] if kind == "struck" else text
        return Part(text, "factor", spaced)
    if kind == "letter":
        return Part(_letter(text), "factor", spaced)
    escaped = text.replace("_", r"\_")
    kinds = {"operatorname": "function", "text": "text"}
    return Part(rf"\{kind}{{{escaped}}}", kinds.get(kind, "factor"), spaced)


def _letter(text):
    r"""Return a letter with its accent and its primes, such as \bar{ρ}' for ρ̄'."""
    sign, *accents = unicodedata.normalize("NFD", text.rstrip("'"))
    for accent in accents:
        sign = rf"\{ACCENTS[accent]}{{{sign}}}"
    return sign + "'" * text.count("'")


def _append(parts, part):
    """Append a part; an index, a power or what a root is of joins the one before."""
    if part.kind == "index":
        parts[-1] = parts[-1]._replace(tex=parts[-1].tex + part.tex)
    elif parts and parts[-1].kind == "script":
        script = parts.pop()
        _append(parts, Part(f"{script.tex}{{{part.tex}}}", "index"))
    elif parts and parts[-1].kind == "root":
        parts[-1] = Part(rf"\sqrt{{{part.bare}}}", "factor", parts[-1].spaced)
    else:
        parts.append(part)


def _group(parts, opening, closing, before, after):
    """Return what stands in parentheses; those of a fraction are left away."""
    kind = before[-1].kind if before else ""
    if opening == "{" and kind == "script":
        return Part(_joined(parts), "factor")
    indexed = re.match(f"[_^{''.join(RAISED)}]", after)
    if opening == "(" and kind not in {"factor", "function"} and not indexed:
        whole = _with_fractions(parts, slash=not any(part.spaced for part in parts))
        if len(whole) == 1 and whole[0].tex.startswith(r"\frac"):
            return whole[0]
    inner = _joined(_with_fractions(parts))
    is_tall = re.search(r"\\(frac|sum|prod|int|bigcup)(?![a-z])", inner)
    left, right = (r"\left", r"\right") if is_tall else ("", "")
    opening, closing = IN_TEX.get(opening, opening), IN_TEX.get(closing, closing)
    return Part(f"{left}{opening} {inner} {right}{closing}", "group")


def _with_fractions(parts, slash=False):
    """Make fractions of what stands about slashes with spaces, or about all of them."""
    parts, found = list(parts), []
    while parts:
        part = parts.pop(0)
        spaced = part.spaced and parts and parts[0].spaced
        if part.kind != "slash" or not (slash or spaced):
            found.append(part)
            continue
        above, below = [], []
        while found and found[-1].kind != "operator":
            above.insert(0, found.pop())
            if above[0].spaced:
                break
        is_sum = parts[0].kind == "large"
        while parts and parts[0].kind not in {"operator", "slash"}:
            if below and parts[0].spaced and not is_sum:
                break
            below.append(parts.pop(0))
        tex = rf"\frac{{{_bare(above)}}}{{{_bare(below)}}}"
        found.append(Part(tex, "factor", above[0].spaced))
    return found


def _bare(parts):
    return parts[0].bare if len(parts) == 1 else _joined(parts)


def _joined(parts):
    """Join parts, with the spaces about words and between factors that TeX leaves."""
    tex = parts[0].tex if parts else ""
    for last, part in itertools.pairwise(parts):
        kinds = {last.kind, part.kind} if part.spaced else {"operator"}
        if "text" in kinds and ("operator" not in kinds or last.tex == ","):
            tex += r"\ "
        elif kinds <= {"factor", "group"} and not part.tex.startswith(r"\left"):
            tex += r"\, "
        else:
            tex += " "
        tex += part.tex
    return tex
