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

import dataclasses
import re
import unicodedata

SIGNS = {  # The LaTeX of words and signs, by the kind of the part that they are.
    "operator": {sign: sign for sign in (*"=<>+-,;.:", ":=")}
    | {"≤": r"\le", "≥": r"\ge", "≠": r"\ne", "≈": r"\approx", "∝": r"\propto"}
    | {"~": r"\sim", "∈": r"\in", "∋": r"\ni", "⊆": r"\subseteq", "mod": r"\bmod"}
    | {"←": r"\leftarrow", "⇒": r"\Rightarrow", "|": r"\mid", "‖": r"\,\|\,"}
    | {"·": r"\cdot"},
    "factor": {"∂": r"\partial", "∇": r"\nabla", "¬": r"\neg", "½": r"\tfrac12"}
    | {"…": r"\dots", "⋯": r"\cdots", "ℓ": r"\ell", "ℝ": r"\mathbb{R}", "*": "*"}
    | {"∞": r"\infty", "Normal": r"\mathcal{N}"},
    "large": {"∑": r"\sum", "∏": r"\prod", "∫": r"\int", "⋃": r"\bigcup"},
    "function": {x: rf"\{x}" for x in ("cos", "exp", "log", "max", "min", "tanh")}
    | {x: rf"\operatorname{{{x}}}" for x in ("KL", "arsinh", "logsumexp")}
    | {"argmax": r"\operatorname*{argmax}", "sinh": r"\sinh"},
    "slash": {"/": "/"},
}
PAIRS = {"(": ")", "[": "]", "{": "}", "|": "|", "‖": "‖", "⌊": "⌋"}
IN_TEX = {"{": r"\{", "}": r"\}", "‖": r"\|", "⌊": r"\lfloor", "⌋": r"\rfloor"}
RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀ", [*"0123456789+-", r"\top"], strict=True))
ACCENTS = {"\u0302": "hat", "\u0303": "tilde", "\u0304": "bar"}
TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<code>`[^`]+`)|(?P<number>\d+(\.\d+)?)|(?P<word>[A-Za-z]{2,})|"
    rf"(?P<raised>[{''.join(RAISED)}]+)|"
    rf"(?P<letter>[^\W\d_][{''.join(ACCENTS)}]?'*)|(?P<sign>:=|.)"
)


def to_tex(text):
    r"""Return LaTeX for a block: a blank line between lines, and `\qquad` in them."""
    whole, margin = [], None
    for line in filter(str.strip, text.splitlines()):
        indent = len(line) - len(line.lstrip())
        margin = indent if margin is None else margin
        if line.lstrip().startswith("{ "):
            whole[-1] += f"\n{line.strip()}"
        elif indent > margin:
            whole[-1] += f" {line.strip()}"
        else:
            whole.append(line.strip())
    return "\n\n".join(map(_line, whole))


def to_inline_tex(text):
    """Return LaTeX for what stands in a line of text."""
    return _Reader(" ".join(text.split())).read()


def _line(line):
    first, *rest = line.split("\n{ ")
    if not rest:
        return _side_by_side(line)
    before, _, value = first.rpartition("{ ")
    cases = [re.split(" {3,}", case, maxsplit=2) for case in (value, *rest)]
    after = cases[-1][2:]
    # A row that begins with a bracket would be read as an option without the braces.
    rows = r" \\ {} ".join(" & ".join(map(to_inline_tex, case[:2])) for case in cases)
    rows = rows.replace(r"\frac", r"\dfrac")
    tex = rf"{to_inline_tex(before)} \begin{{cases}} {{}} {rows} \end{{cases}}"
    return r" \qquad ".join([tex, *map(_side_by_side, after)])


def _side_by_side(text):
    return r" \qquad ".join(map(to_inline_tex, re.split(" {3,}", text)))


@dataclasses.dataclass
class Part:
    """A part of an equation."""

    tex: str
    kind: str  # "factor", "function", "group", "large", "operator", "slash", "text".
    spaced: bool = False  # Whether a space stands before it.
    tall: bool = False  # Whether parentheses about it grow.
    inner: str = ""  # What parentheses that a fraction or a root needs not stand about.


class _Reader:
    """Reads an equation from left to right."""

    def __init__(self, text):
        self.text = text
        found = TOKEN.finditer(unicodedata.normalize("NFC", text))
        self.tokens = [(match.lastgroup, match[0]) for match in found]
        self.at = 0

    def read(self):
        """Return the LaTeX of it all."""
        tex = _joined(_with_fractions(self.parts("")))
        if self.at < len(self.tokens):
            raise ValueError(
                f"{self.text}: {self.tokens[self.at][1]!r} closes nothing."
            )
        return tex

    def peek(self, ahead=0):
        """Return the kind and the text of what comes; they are empty at the end."""
        at = self.at + ahead
        return self.tokens[at] if 0 <= at < len(self.tokens) else ("", "")

    def take(self):
        """Return what comes, and go past it."""
        self.at += 1
        return self.peek(-1)

    def parts(self, opening):
        """Read what stands between an opening sign and the one that closes."""
        found, spaced = [], False
        while not self.closes(opening):
            if self.peek()[0] == "space":
                spaced = bool(self.take())
                continue
            part = self.part(found[-1] if found and not spaced else None)
            self.add_scripts(part)
            part.spaced, spaced = spaced, False
            found.append(part)
        return found

    def closes(self, opening):
        """Tell whether what comes closes what was opened, or is the end."""
        _, text = self.peek()
        if not text and opening:
            raise ValueError(f"{self.text}: {opening!r} is not closed.")
        if text in {"|", "‖"}:
            return text == opening and not self.is_between_spaces()
        return not text or text in PAIRS.values()

    def is_between_spaces(self):
        """Tell whether what comes has a space on either side."""
        return self.peek(-1)[0] == self.peek(1)[0] == "space"

    def part(self, before):
        """Read a part without its indices; `before` touches it, or is None."""
        apart = self.is_between_spaces()
        kind, text = self.take()
        follows = self.peek()[1]
        if text in PAIRS and not (text in SIGNS["operator"] and apart):
            return self.group(text, before)
        for kind_of_sign, signs in SIGNS.items():
            if text in signs:
                tall = kind_of_sign == "large"
                return Part(signs[text], kind_of_sign, tall=tall)
        if text == "√":
            root = self.part(None)
            return Part(rf"\sqrt{{{root.inner or root.tex}}}", "factor", tall=root.tall)
        if (text, follows) in {("1", "["), ("E", "["), ("E", "_")}:
            return Part(rf"\mathbb{{{text}}}", "factor")
        if kind == "word" and follows and follows in "([_":
            return Part(rf"\operatorname{{{text}}}", "function")
        if kind == "word":
            return Part(rf"\text{{{text}}}", "text")
        if kind == "letter":
            return Part(_letter(text), "factor")
        if kind == "number":
            return Part(text, "factor")
        if kind == "code":
            code = text.strip("`").replace("_", r"\_")
            return Part(rf"\texttt{{{code}}}", "factor")
        raise ValueError(f"{self.text}: {text!r} has no meaning here.")

    def group(self, opening, before):
        """Read what stands in parentheses, and leave those of a fraction away."""
        parts = self.parts(opening)
        closing = self.take()[1]
        follows = self.peek()
        called = before and before.kind in {"factor", "function"}
        indexed = follows[0] == "raised" or follows[1] in {"_", "^"}
        if opening == "(" and not called and not indexed:
            whole = _with_fractions(parts, slash=not any(part.spaced for part in parts))
            if len(whole) == 1 and whole[0].tex.startswith(r"\frac"):
                return whole[0]
        parts = _with_fractions(parts)
        inner, tall = _joined(parts), any(part.tall for part in parts)
        left, right = IN_TEX.get(opening, opening), IN_TEX.get(closing, closing)
        if tall:
            left, right = rf"\left{left}", rf"\right{right}"
        inner_if_bare = inner if opening == "(" else ""
        return Part(f"{left} {inner} {right}", "group", tall=tall, inner=inner_if_bare)

    def add_scripts(self, part):
        """Read the indices and the powers of a part."""
        while self.peek()[0] == "raised" or self.peek()[1] in {"_", "^"}:
            kind, text = self.take()
            if kind == "raised":
                part.tex += f"^{{{''.join(RAISED[sign] for sign in text)}}}"
            else:
                part.tex += f"{text}{{{self.script()}}}"
            part.inner = ""

    def script(self):
        """Read what is an index or a power."""
        kind, text = self.peek()
        if text == "{":
            self.take()
            tex = _joined(self.parts("{"))
            self.take()
            return tex
        if kind != "word":
            return self.part(None).tex
        self.take()
        while self.peek()[1] == "_" and self.peek(1)[0] == "word":
            self.take()
            text += rf"\_{self.take()[1]}"
        return rf"\text{{{text}}}"


def _letter(text):
    r"""Return a letter with its accent and its primes, such as \bar{\rho}' for ρ̄'."""
    sign, *accents = unicodedata.normalize("NFD", text.rstrip("'"))
    name = unicodedata.name(sign)
    if name.startswith("GREEK"):
        greek = name.split()[-1].lower().replace("lamda", "lambda")
        sign = "\\" + (greek.capitalize() if "CAPITAL" in name else greek)
    for accent in accents:
        sign = rf"\{ACCENTS[accent]}{{{sign}}}"
    return sign + "'" * text.count("'")


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
        found.append(Part(tex, "factor", above[0].spaced, tall=True))
    return found


def _bare(parts):
    """Return the LaTeX of parts, without the parentheses about all of them."""
    return parts[0].inner if len(parts) == 1 and parts[0].inner else _joined(parts)


def _joined(parts):
    tex, last = "", None
    for part in parts:
        kinds = {part.kind, last.kind} if last and part.spaced else {"operator"}
        comma = last and part.spaced and (last.tex, part.kind) == (",", "text")
        if comma or ("text" in kinds and "operator" not in kinds):
            tex += r"\ "
        elif kinds <= {"factor", "group"} and not part.tex.startswith(r"\left"):
            tex += r"\, "  # TeX has no space between factors.
        else:
            tex += " " if last else ""
        tex += part.tex
        last = part
    return tex
