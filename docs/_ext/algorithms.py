"""What is known of each algorithm: its recipe, facts, and results in the zoo.

No recipe is imported: recipes and the zoo are parsed, and results stand in `zoo.md`.
"""

import ast
import functools
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[1]
EXAMPLES = DOCS.parent / "examples"
FACTS = tomllib.loads((DOCS / "algorithms.toml").read_text("utf-8"))
DOCSTRING = (
    r"(?P<notes>.*?) ?(?:\bSource: (?P<source>.*?))? ?"
    r"(?:\bUsual(?: \((?P<usual_from>.*?)\))?: (?P<usual>.*))?"
)
FIELD = r"\b(?:batch|expert|step|data|chosen|rejected)\.([a-z]\w*\b)(?!\()"


class Function(NamedTuple):
    """A function, class or constant of the recipes, or an entry of the zoo."""

    file: str  # In `examples/`, without a suffix.
    name: str
    node: ast.AST

    @property
    def docstring(self):
        """Return the docstring; constants have none."""
        has_one = isinstance(self.node, ast.FunctionDef | ast.ClassDef)
        return (ast.get_docstring(self.node) or "") if has_one else ""

    @property
    def doc(self):
        """Return the parts of the docstring, in Markdown."""
        what, _, rest = self.docstring.partition("\n\n")
        parts = re.fullmatch(DOCSTRING, " ".join(rest.split())).groupdict("")
        return {"what": " ".join(what.split())} | parts

    @property
    def source(self):
        """Return the source."""
        nodes = [*getattr(self.node, "decorator_list", ()), self.node]
        lines = read(self.file).splitlines()
        text = "\n".join(lines[nodes[0].lineno - 1 : self.node.end_lineno])
        return f"ENTRIES = {{\n{text}\n}}" if isinstance(self.node, ast.expr) else text

    @property
    def code(self):
        """Return the source without the docstring, which the page shows as text."""
        if not self.docstring or len(self.node.body) == 1:
            return self.source
        return re.sub(r'\n    """.*?"""\n+', "\n", self.source, count=1, flags=re.S)

    @property
    def uses(self):
        """List what the code uses of its folder."""
        names = [x for x in ast.walk(self.node) if isinstance(x, ast.Name)]
        own = {x.id for x in names if isinstance(x.ctx, ast.Store)} | {self.name}
        known = definitions(self.file)
        return [known[x.id] for x in names if x.id in known.keys() - own]


class Algorithm(NamedTuple):
    """An algorithm, by its name in the zoo."""

    name: str
    functions: tuple[Function, ...]
    facts: dict
    family: str  # The section of the zoo.
    task: str
    results: list[str]  # What it reaches at least, the worst and the median.

    @property
    def helpers(self):
        """List what the functions use."""
        return [x for x in needs(self.functions) if x not in self.functions]

    @property
    def code(self):
        """Return the source of all that the algorithm needs."""
        return "\n\n\n".join(x.code for x in [*self.functions, *self.helpers])

    @property
    def names(self):
        """List the functions of the library that the code uses."""
        return list(dict.fromkeys(re.findall(r"\brlaxlib\.(\w+)", self.code)))

    @property
    def modules(self):
        """Return the files of the code as trees, first that of the functions."""
        files = dict.fromkeys(each.file for each in needs(self.functions)[::-1])
        return [ast.parse(read(file)) for file in files]

    @property
    def imports(self):
        """Return the lines that import what the code uses from other packages."""
        lines = {
            ast.unparse(node)
            for module in self.modules
            for node in module.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            if not getattr(node, "level", 0)
            for name in (each.asname or each.name for each in node.names)
            if re.search(rf"\b{name}\b", self.code)
        }
        return "\n".join(sorted(lines, key=lambda line: ("rlaxlib" in line, line)))

    @property
    def fields(self):
        """Return the fields of the batch that the code reads, and what they hold."""
        known = {}
        for module in self.modules:
            text = ast.get_docstring(module) or ""
            for names, what in re.findall(r"^    (\w[\w, ]*?)  +(.+)", text, re.M):
                known = dict.fromkeys(names.split(", "), what.rstrip(",.")) | known
        known = FACTS["fields"] | known
        read = dict.fromkeys(re.findall(FIELD, self.code))
        return {name: known.get(name, "see above") for name in read}


def read(file):
    """Return the source of a file of the examples."""
    return (EXAMPLES / f"{file}.py").read_text("utf-8")


@functools.cache
def definitions(file):
    """Return what a file defines, or imports from another of its folder."""
    folder, found = file.partition("/")[0], {}
    for node in ast.parse(read(file)).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            there = definitions(f"{folder}/{node.module}")
            found |= {x.name: there[x.name] for x in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = Function(file, node.name, node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            name = ast.unparse(getattr(node, "target", None) or node.targets[0])
            found[name] = Function(file, name, node)
    return found


def files(folder):
    """List the files of a folder of the examples."""
    return sorted(f"{folder}/{path.stem}" for path in (EXAMPLES / folder).glob("*.py"))


def needs(functions, users=()):
    """Return functions, after all that they use but their users, each once."""
    ordered = (
        x
        for each in functions
        if each not in users
        for x in [*needs(each.uses, (*users, each)), each]
    )
    return list(dict.fromkeys(ordered))


def entries(file):
    """Return the entries of a file of the zoo by name, as nodes."""
    known = definitions(file)
    table = known["ENTRIES"].node.value if "ENTRIES" in known else ast.Dict([], [])
    items = zip(table.keys, table.values, strict=True)
    return {key.value: node for key, node in items if key}


def training(name):
    """Return the code of the zoo that trains an algorithm, and its file."""
    for file in files("zoo"):
        if node := entries(file).get(name):
            entry = Function(file, f"ENTRIES[{name!r}]", node)
            if isinstance(node, ast.Attribute):  # `r2d2.ENTRY`, in a file of its own.
                entry = definitions(f"zoo/{node.value.id}")[node.attr]
            used = [each for each in needs([entry]) if each.file == entry.file]
            used.sort(key=lambda each: each.node.lineno)
            return entry.file, "\n\n".join(each.source for each in used)
    return "", ""


@functools.cache
def algorithms():
    """Return the algorithms of the zoo by name."""
    where = {}
    for known in map(definitions, files("recipes")):
        where |= {x: y for x, y in known.items() if "Usual" in y.docstring}
        where |= {x: y for x, y in known.items() if x not in where}
    found, family, task = {}, "", ""
    for line in (DOCS / "zoo.md").read_text("utf-8").splitlines():
        family = line[3:] if line.startswith("## ") else family
        task = line if re.match("[A-Z]", line) else task
        row = re.match(r"\| \[.*?\]\(algorithms/(\w+)\.md\)(.*?)\|.*?\|(.*)", line)
        if row:
            name, functions, results = row.groups()
            functions = [where[x] for x in re.findall(r"`(\w+)`", functions)]
            facts = _facts(name, functions[0])
            functions += [where[x] for x in facts.get("also", ())]
            results = [each.strip() for each in results.split("|")[:3]]
            found[name] = Algorithm(
                name, tuple(functions), facts, family, task, results
            )
    return found


def _facts(name, function):
    """Return what is said of an algorithm, or what its file and docstring say."""
    about, file = function.doc["what"], function.file.removeprefix("recipes/")
    derived = {"title": re.split("[:,.]", about)[0], "about": about}
    defaults = FACTS["defaults"].get(file, {"actions": "any", "data": "any"})
    return derived | defaults | FACTS["algorithms"].get(file, {}).get(name, {})
