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
- Words are names of functions if `FUNCTIONS` has them, or if they have indices or
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

FUNCTIONS = {
    **{x: rf"\{x}" for x in ("cos", "exp", "log", "max", "min", "sinh", "tanh")},
    **{x: rf"\operatorname{{{x}}}" for x in ("KL", "arsinh", "logsumexp")},
    "argmax": r"\operatorname*{argmax}",
}
# The fonts have all other signs.
SIGNS = {"|": r"\mid", "‖": r"\,\|\,", "~": r"\sim", "·": r"\cdot", "mod": r"\bmod"}
SIGNS |= {"…": r"\dots", "⋯": r"\cdots", "½": r"\tfrac12", "Normal": r"\mathcal{N}"}
RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
ACCENTS = {"\u0302": r"\hat", "\u0303": r"\tilde", "\u0304": r"\bar"}
TOKEN = re.compile(
    rf"""(?P<space>\s*)(?:`(?P<texttt>[^`]+)`
    | (?P<operator>:= | \\qquad | [-=<>+,;.:≤≥≠≈∝~∈∋⊆←⇒·] | mod\b | (?<=\s)[|‖](?=\s))
    | (?P<factor>\d+(?:\.\d+)? | Normal | \\top | [∂∇¬½…⋯∞*])
    | (?P<function>(?<![_^])(?:{"|".join(FUNCTIONS)})(?![a-z]))
    | (?P<operatorname>(?<![_^])[A-Za-z]{{2,}}(?=[(\[_]))
    | (?P<text>[A-Za-z]{{2,}}(?:_[A-Za-z]{{2,}})*)
    | (?P<letter>[^\W\d_][{"".join(ACCENTS)}]?'*)
    | (?P<large>[∑∏∫⋃]) | (?P<slash>/) | (?P<script>[_^]) | (?P<root>√)
    | (?P<bracket>[][(){{}}|‖⌊⌋]) | (?P<unknown>.))""",
    re.VERBOSE,
)


class Part(NamedTuple):
    """A part of an equation."""

    tex: str
    kind: str  # That of `TOKEN`, or "group" for what stands in brackets.
    spaced: bool = False  # Whether a space stands before it.


def to_tex(text):
    r"""Return LaTeX for a block: a blank line between lines, and `\qquad` in them."""
    text = re.sub(r"\n +\{ ", "\n{ ", textwrap.dedent(text).strip())
    text = re.sub(r"\n +", " ", text)
    return "\n\n".join(map(_line, re.split(r"\n+(?!\{ )", text)))


def _line(line):
    first, *rest = line.split("\n{ ")
    if not rest:
        return to_inline_tex(line)
    before, _, value = first.rpartition("{ ")
    cases = [re.split(" {3,}", case, maxsplit=2) for case in (value, *rest)]
    # A row that begins with a bracket would be read as an option without the braces.
    rows = r" \\ {} ".join(" & ".join(map(to_inline_tex, case[:2])) for case in cases)
    rows = rows.replace(r"\frac", r"\dfrac")
    tex = rf"{to_inline_tex(before)} \begin{{cases}} {{}} {rows} \end{{cases}}"
    return r" \qquad ".join([tex, *map(to_inline_tex, cases[-1][2:])])


def to_inline_tex(text):
    """Return LaTeX for what stands in a line of text."""
    text = re.sub(r"(?<=\S) {3,}", r" \\qquad ", text)
    text = unicodedata.normalize("NFC", " ".join(text.split()))
    text = re.sub("([⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+)", r"^{\1}", text.replace("ᵀ", r"^{\top}"))
    text = re.sub(r"\b1(?=\[)", "𝟙", re.sub(r"\bE(?=[\[_])", "𝔼", text))
    parts, _ = _parts(TOKEN.finditer(text.translate(RAISED)))
    return _joined(_with_fractions(parts))


def _parts(tokens, opening=""):
    """Return the parts up to the end, or up to the token that closes a bracket."""
    parts = []
    for token in tokens:
        sign = token["bracket"]
        if not sign:
            _append(parts, _part(token))
        elif sign in ")]}⌋" or (sign in "|‖" and sign == opening):
            if not opening:
                raise ValueError(f"{token.string}: {sign!r} closes nothing.")
            return parts, token
        else:
            _append(parts, _group(parts, token, tokens))
    if opening:
        raise ValueError(f"{token.string}: {opening!r} is not closed.")
    return parts, None


def _part(token):
    """Return the part of a token that is no bracket."""
    kind = token.lastgroup
    text = token[kind]
    tex = (FUNCTIONS | SIGNS).get(text, text)
    if kind == "unknown":
        raise ValueError(f"{token.string}: {text!r} has no meaning here.")
    if kind == "letter":
        sign, *accents = unicodedata.normalize("NFD", text.rstrip("'"))
        for accent in accents:
            sign = f"{ACCENTS[accent]}{{{sign}}}"
        tex, kind = sign + "'" * text.count("'"), "factor"
    elif kind in {"text", "texttt", "operatorname"}:
        escaped = text.replace("_", r"\_")
        tex = rf"\{kind}{{{escaped}}}"
        kind = {"texttt": "factor", "operatorname": "function"}.get(kind, kind)
    return Part(tex, kind, bool(token["space"]))


def _append(parts, part):
    """Append a part; an index, a power or what a root is of joins the one before."""
    last = parts[-1] if parts else Part("", "")
    if last.kind == "script":
        power = f"{parts.pop().tex}{{{part.tex}}}"
        parts[-1] = parts[-1]._replace(tex=parts[-1].tex + power)
    elif last.kind == "root":
        parts[-1] = Part(rf"\sqrt{{{_bare([part])}}}", "factor", last.spaced)
    else:
        parts.append(part)


def _group(before, opening, tokens):
    """Return what stands in brackets; the parentheses of a fraction are left away."""
    left, spaced = opening["bracket"], bool(opening["space"])
    parts, closing = _parts(tokens, left)
    kind = before[-1].kind if before and not spaced else ""
    if left == "{" and kind == "script":
        return Part(_joined(parts), "factor")
    indexed = closing.string[closing.end() :].startswith(("_", "^"))
    if left == "(" and kind not in {"factor", "function"} and not indexed:
        whole = _with_fractions(parts, slash=not any(part.spaced for part in parts))
        if len(whole) == 1 and whole[0].tex.startswith(r"\frac"):
            return whole[0]._replace(spaced=spaced)
    inner = _joined(_with_fractions(parts))
    tall = (r"\left", r"\right") if re.search(r"\\frac|[∑∏∫⋃]", inner) else ("", "")
    left, right = (re.sub("[{}]", r"\\\g<0>", x) for x in (left, closing["bracket"]))
    return Part(f"{tall[0]}{left} {inner} {tall[1]}{right}", "group", spaced)


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
    """Join parts, without the parentheses about all of them."""
    tex = _joined(parts)
    match = re.fullmatch(r"(?:\\left)?\( (.*) (?:\\right)?\)", tex)
    return match[1] if match and [x.kind for x in parts] == ["group"] else tex


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
