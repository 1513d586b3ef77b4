"""Test the conversion of plain-text equations in docstrings to LaTeX."""

import re
from pathlib import Path

import catalog
import equations
import pytest

import rlaxlib

SOURCES = sorted(Path(rlaxlib.__file__).parent.rglob("*.py"))
BLOCK = r"^( *)::\n\n((?:\1 +.*\n|\n)+)"
INLINE = r":math:`([^`]*)`"


def squeezed(tex):
    """Remove spaces that TeX ignores."""
    return re.sub(r"(?<![a-zA-Z\\]) | (?![a-zA-Z])", "", tex.replace("\n", " "))


@pytest.mark.parametrize(
    ("text", "tex"),
    [
        ("x_t + y_{t+1}", r"x_{t}+y_{t+1}"),
        ("x_old", r"x_{\text{old}}"),
        ("x_min_max_mix", r"x_{\text{min\_max\_mix}}"),
        ("d^n + x² - f⁻¹(y)", r"d^{n}+x^{2}-f^{-1}(y)"),
        ("Wᵀ h", r"W^{\top}\,h"),
        ("√K + √(x + 1)", r"\sqrt{K}+\sqrt{x+1}"),
        ("x̄_i + Â + ẑ' + ρ̃", r"\bar{x}_{i}+\hat{A}+\hat{z}'+\tilde{ρ}"),
        ("λ Λ φ", r"λ\,Λ\,φ"),
        ("a/b", "a/b"),
        ("a / b", r"\frac{a}{b}"),
        ("-a b / c", r"-a\,\frac{b}{c}"),
        ("(a + b) / (c d)", r"\frac{a+b}{c\,d}"),
        ("f(a) / g_t(b)", r"\frac{f(a)}{g_{t}(b)}"),
        ("p_i / ∑_j p_j q + 1", r"\frac{p_{i}}{∑_{j}p_{j}\,q}+1"),
        ("(1/n) ∑_i x", r"\frac{1}{n}∑_{i}x"),
        ("⋃_i [x_i, y_i]", r"⋃_{i}[x_{i},y_{i}]"),
        ("log (a / b)", r"\log \frac{a}{b}"),
        ("log(a / b)", r"\log \left(\frac{a}{b}\right)"),
        ("f(a/b)", "f(a/b)"),
        ("(a / b)²", r"\left(\frac{a}{b}\right)^{2}"),
        ("(a b/c) d", r"(a\,b/c)\,d"),
        ("max_a [∑_i x]", r"\max_{a}\left[∑_{i}x \right]"),
        ("argmax_a q(a)", r"\operatorname*{argmax}_{a}q(a)"),
        ("KL(p ‖ q) + ‖x - y‖", r"\operatorname{KL}(p \,\|\,q)+‖ x-y ‖"),
        ("|x - |y||", "|x-| y | |"),
        ("π(a | s)", r"π(a \mid s)"),
        ("1[x ≤ y] + E_a[x] + E + 1", r"𝟙[x ≤y]+𝔼_{a}[x]+E+1"),
        ("U[0, 1)", "U[0,1)"),
        ("softmax(logits)", r"\operatorname{softmax}(\text{logits})"),
        ("x for each i", r"x\ \text{for}\ \text{each}\ i"),
        ("∂L / ∂logits", r"\frac{∂ L}{∂ \text{logits}}"),
        ("{x : x > 0}", r"\{ x:x>0 \}"),
        ("exp(`log_x`)", r"\exp(\texttt{log\_x})"),
        ("1.5 d, 10⁻⁸", r"1.5\,d,10^{-8}"),
    ],
)
def test_text_is_converted_to_latex(text, tex):
    assert squeezed(equations.to_tex(text)) == squeezed(tex)
    if " / " not in text:
        assert squeezed(equations.to_inline_tex(text)) == squeezed(tex)


def test_each_line_is_an_equation_and_indented_lines_continue_it():
    text = "  a = b,   c = d\n  e = f\n    + g\n"
    assert equations.to_tex(text).split("\n\n") == [
        r"a = b , \qquad c = d",
        "e = f + g",
    ]


def test_braces_start_cases():
    text = "y = { x    if x > 0\n    { -x   otherwise,   x in each leaf\nz = 1"
    cases, after = equations.to_tex(text).split("\n\n")
    assert squeezed(cases) == squeezed(
        r"y=\begin{cases} {} x & \text{if}\ x>0 \\ {} -x & \text{otherwise}, "
        r"\end{cases} \qquad x\ \text{in}\ \text{each}\ \text{leaf}"
    )
    assert after == "z = 1"


@pytest.mark.parametrize("text", ["f(x", "x)", "|x", r"\frac{x}{y}", "x # y", "$x$"])
def test_invalid_text_raises_an_error(text):
    with pytest.raises(ValueError, match=re.escape(text)):
        equations.to_tex(text)


def test_all_equations_of_the_library_are_converted_to_latex():
    for path in SOURCES:
        source = path.read_text(encoding="utf-8")
        blocks = [found[1] for found in re.findall(BLOCK, source, re.M)]
        assert len(blocks) == len(re.findall("^ *::$", source, re.M)), path
        # Editors drop directives.
        assert ".. math::" not in source, path
        for text in blocks:
            assert equations.to_tex(text), path
        assert all(map(equations.to_inline_tex, re.findall(INLINE, source))), path


def test_docstrings_contain_no_latex_commands():
    for name in catalog.NAMES:
        assert "\\" not in catalog.docstring(name).replace(r"\*", "*"), name
