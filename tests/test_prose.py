"""Test that prose uses the field's terms, and that docstrings begin with a verb."""

import ast
import inspect
import re
import tokenize
from pathlib import Path

import rlaxlib

ROOT = Path(__file__).parents[1]
FOLDERS = ("rlaxlib", "docs", "examples", "tests", "benchmarks")
FILES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".md")
    and not {"_build", "algorithms", "api"} & set(path.parts)
]
FILES += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]

# Words to avoid, and what to write.
TERMS = {
    r"slopes?": "gradient, derivative",
    r"digits?": "precision, accurate to ...",
    r"way back": "backward pass",
    r"(?:held|hold|holds|holding) constant": "stop the gradient",
    r"whose values? (?:is|are) known": "concrete",
    r"(?:is|are) none of": "is not one of, is out of range",
    r"(?:is|are) no (?:number|action|decision|array)s?": "NaN, out of range, invalid",
    r"(?<!-)(?<!Markov )decisions?(?![ -]transformer)": "valid step, action",
    r"what is asked": "the noun",
    r"written out": "custom derivative, explicit",
    r"surpris\w*": "negative log-probability, TD error",
    r"comb|teeth": "sample points",
    r"undecided": "entropy",
    r"(?:held|hold|holds) against": "compare with, loss between",
    r"axis that (?:the )?devices form": "mapped axis name",
    r"entr(?:y|ies) that counts?": "unmasked entry",
    r"squash(?:es)? and stretch\w*": "transform, inverse",
}
ANY_TERM = re.compile(rf"\b(?:{'|'.join(TERMS)})\b", re.I)
LITERAL = {  # Where a word is meant literally.
    "tests/test_prose.py": set(TERMS),
}
VERBS = re.findall(
    r"\w+",
    """
    Accumulate Adapt Add Advance Aggregate Append Apply Average Check Clip
    Complete Compose Compute Convert Correct Create Cut Decode Describe Distort
    Embed Encode Estimate Evaluate Extract Fill Find Generate Impute Invert Make
    Map Mark Mask Mix Move Normalise Pick Pool Project Rank Reduce Replace Rescale
    Resample Restore Return Sample Scale Select Shape Solve Split Standardise Sum Test
    Transpose Truncate Turn Update Wrap
    """,
)


def prose(path):
    """Yield the prose of a file, with line numbers: all of Markdown but its code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        code = re.compile(r"^```(?!\{).*?^```|`[^`\n]+`", re.M | re.S)
        text = code.sub(lambda match: "\n" * match[0].count("\n"), text)
        yield from enumerate(text.splitlines(), 1)
        return
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
            docstring = re.sub(r"`[^`]+`", "", ast.get_docstring(node) or "")
            yield from enumerate(docstring.split("\n"), node.body[0].lineno)
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def offences(path):
    """Yield the words of a file to avoid, each with what to write."""
    if not ANY_TERM.search(path.read_text(encoding="utf-8").replace("_", " ")):
        return  # Most files, before they are parsed.
    name = str(path.relative_to(ROOT))
    for line, text in prose(path):
        for pattern, better in TERMS.items():
            if pattern not in LITERAL.get(name, ()):
                for match in re.finditer(rf"\b(?:{pattern})\b", text, re.I):
                    yield f"{name}:{line}: {match[0]!r}: write {better}"


def test_prose_uses_the_terms_of_the_field():
    found = [offence for path in FILES for offence in offences(path)]
    assert not found, "\n".join(found)


def test_first_lines_of_public_docstrings_begin_with_a_verb_and_are_short():
    for name in rlaxlib.__all__:
        thing = getattr(rlaxlib, name)
        if inspect.isfunction(thing):
            first = inspect.getdoc(thing).partition("\n")[0]
            assert first.split()[0] in VERBS, f"{name}: {first}"
            assert len(first) <= 80, f"{name}: {first}"
            assert first.endswith("."), f"{name}: {first}"
