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
LISTED = {f"recipes/{file}": facts for file, facts in FACTS["algorithms"].items()}
FIELD = r"\b(?:batch|expert|step|data|chosen|rejected)\.([a-z]\w*)"


class Function(NamedTuple):
    """A function, class or constant of the recipes, or of the zoo."""

    file: str  # In `examples/`, without a suffix.
    name: str
    node: ast.stmt

    @property
    def docstring(self):
        """Return the docstring; constants have none."""
        return (
            ""
            if isinstance(self.node, ast.Assign | ast.Expr)
            else ast.get_docstring(self.node) or ""
        )

    @property
    def doc(self):
        """Return the parts of the docstring, in Markdown."""
        what, _, rest = self.docstring.partition("\n\n")
        form = r"(.*?)(?:\bSource: (.*?))?(?:\bUsual(?: \((.*?)\))?: (.*))?"
        parts = re.fullmatch(form, " ".join(rest.split())).groups("")
        notes, source, usual_from, usual = map(str.strip, parts)
        return {
            "what": " ".join(what.split()),
            "notes": notes,
            "source": source,
            "usual": re.sub(r"^[a-z](?=[a-z])", lambda x: x[0].upper(), usual),
            "usual_from": usual_from,
        }

    @property
    def source(self):
        """Return the source."""
        lines = _source(self.file).splitlines()
        first = min(x.lineno for x in [self.node, *_decorators(self.node)])
        return "\n".join(lines[first - 1 : self.node.end_lineno])

    @property
    def code(self):
        """Return the source without the docstring, which the page shows as text."""
        if not self.docstring or len(self.node.body) == 1:
            return self.source
        return re.sub(r'\n    """.*?"""\n+', "\n", self.source, count=1, flags=re.S)


class Algorithm(NamedTuple):
    """An algorithm, by its name in the zoo."""

    name: str
    functions: tuple[Function, ...]
    facts: dict
    family: str = ""  # The section of the zoo.
    task: str = ""
    results: tuple[str, ...] = ()  # What it reaches at least, the worst and the median.

    @property
    def helpers(self):
        """List what the functions use."""
        return [x for x in needs(self.functions) if x not in self.functions]

    @property
    def code(self):
        """Return the source of all that the algorithm needs."""
        return "\n\n\n".join(x.code for x in [*self.functions, *self.helpers])

    @property
    def imports(self):
        """Return the lines that import what the code uses from other packages."""
        found = {}
        for file in dict.fromkeys(each.file for each in needs(self.functions)):
            for node in ast.parse(_source(file)).body:
                names = (
                    getattr(node, "names", ()) if not getattr(node, "level", 0) else ()
                )
                for name in [each.asname or each.name for each in names]:
                    if re.search(rf"\b{name}\b", self.code):
                        found[ast.unparse(node)] = name
        return "\n".join(sorted(found, key=lambda line: "rlaxlib" in line))

    @property
    def arguments(self):
        """Return the names of the arguments of all functions."""
        nodes = [each.node for each in self.functions]
        return {
            x.arg for node in nodes for x in getattr(node, "args", ast.arguments()).args
        }

    @property
    def fields(self):
        """Return the contents of the batch that the code reads, and their fields."""
        known = {}
        for file in dict.fromkeys([each.file for each in needs(self.functions)][::-1]):
            text = ast.get_docstring(ast.parse(_source(file))) or ""
            for names, what in re.findall(r"^    (\w[\w, ]*?)  +(.+)", text, re.M):
                for name in names.split(", "):
                    known.setdefault(name, what.rstrip(",."))
        found = {}
        for name in dict.fromkeys(re.findall(FIELD, self.code)):
            what = known.get(name, FACTS["fields"].get(name, "see above"))
            found.setdefault(what, []).append(name)
        return found

    @property
    def masks(self):
        """Return the masks that the loss takes."""
        masks = {"truncated_t", "sample_mask", "legal_t", "head_mask"}
        return sorted(masks & {x for each in self.fields.values() for x in each})

    @property
    def relatives(self):
        """List algorithms whose losses it needs, others to see, and its neighbours."""
        near = LISTED.get(self.functions[0].file, {})
        names, at = [*near], [*near].index(self.name) if self.name in near else 0
        listed = [*self.facts.get("with", ()), *self.facts.get("see", ())]
        listed += names[max(0, at - 3) : at + 4]
        return [
            x for x in dict.fromkeys(listed) if x != self.name and x in algorithms()
        ]

    @property
    def batch(self):
        """Return what the loss takes."""
        fields = {name for names in self.fields.values() for name in names}
        streams = {"truncated_t", "sample_mask"} & fields
        pairs = {"chosen", "rejected"} & fields
        answers = "pairs of answers" if pairs else "answers"
        derived = "streams" if streams else "transitions"
        derived = answers if self.facts["actions"] == "tokens" else derived
        return self.facts.get("batch", derived)


def _decorators(node):
    return getattr(node, "decorator_list", [])


@functools.cache
def _source(file):
    return (EXAMPLES / f"{file}.py").read_text("utf-8")


@functools.cache
def definitions(folder):
    """Return what each file of a folder defines or imports from another of them."""
    found, imports = {}, []
    for path in sorted((EXAMPLES / folder).glob("*.py")):
        file = f"{folder}/{path.stem}"
        known = found[file] = {}
        for node in ast.parse(_source(file)).body:
            if isinstance(node, ast.ImportFrom) and node.level:
                imports += [(known, node.module, each.name) for each in node.names]
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                known[node.name] = Function(file, node.name, node)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                target = getattr(node, "target", None) or node.targets[0]
                if isinstance(target, ast.Name):
                    known[target.id] = Function(file, target.id, node)
    while imports:  # A file may import what another imports.
        known, module, name = imports.pop(0)
        there = found[f"{folder}/{module}"]
        if name in there:
            known[name] = there[name]
        else:
            imports.append((known, module, name))
    return found


def needs(functions):
    """Return functions, after all that they use, each once."""
    found = {}

    def add(function):
        folder = function.file.partition("/")[0]
        known = definitions(folder)[function.file]
        names = [x for x in ast.walk(function.node) if isinstance(x, ast.Name)]
        own = {x.id for x in names if isinstance(x.ctx, ast.Store)}
        for name in dict.fromkeys(x.id for x in names if x.id not in own):
            if name in known and known[name] not in found and known[name] != function:
                add(known[name])
        found[function] = None

    for each in functions:
        if each not in found:
            add(each)
    return list(found)


def training(name):
    """Return the code of the zoo that trains an algorithm, and its file."""
    files = definitions("zoo")
    for file, known in files.items():
        entries = getattr(known.get("ENTRIES"), "node", None)
        items = entries and zip(entries.value.keys, entries.value.values, strict=True)
        for value in (value for key, value in items or () if key and key.value == name):
            if isinstance(value, ast.Attribute):  # `r2d2.ENTRY`, in a file of its own.
                entry, last = files[f"zoo/{value.value.id}"][value.attr], ""
            else:
                entry = ast.copy_location(ast.Expr(value), value)
                entry = Function(file, name, entry)
                last = f"ENTRIES = {{\n{entry.source}\n}}"
            used = [x for x in needs([entry]) if x.file == entry.file]
            used = sorted(used[:-1] if last else used, key=lambda x: x.node.lineno)
            return entry.file, "\n\n".join([*(x.source for x in used), last]).rstrip()
    return "", ""


@functools.cache
def algorithms():
    """Return all algorithms by name: those of the zoo, and recipes that it lacks."""
    where = {}
    for known in definitions("recipes").values():
        where |= {
            each.name: each for each in known.values() if "Usual" in each.docstring
        }
        where |= {x.name: x for x in known.values() if x.name not in where}
    found, family, task = {}, "", ""
    for line in (DOCS / "zoo.md").read_text("utf-8").splitlines():
        family = line[3:] if line.startswith("## ") else family
        task = line if re.match("[A-Z]", line) else task
        if row := re.match(
            r"\| \[.*?\]\(algorithms/(\w+)\.md\)(.*?)\|(.*?)\|(.*)", line
        ):
            functions = [where[x] for x in re.findall(r"`(\w+)`", row[2])]
            facts = LISTED.get(functions[0].file, {}).get(row[1], {})
            functions += [where[x] for x in facts.get("also", ())]
            results = tuple(map(str.strip, row[4].split("|")[:3]))
            found[row[1]] = _algorithm(row[1], tuple(functions), family, task, results)
    return found


def _algorithm(name, functions, *rest):
    file = functions[0].file.partition("/")[2]
    title = re.split("[:,.]", functions[0].doc["what"])[0]
    facts = {"title": title, "about": functions[0].doc["what"]}
    facts |= FACTS["defaults"].get(file, {"actions": "any", "data": "any"})
    facts |= LISTED.get(functions[0].file, {}).get(name, {})
    return Algorithm(name, functions, facts, *rest)
