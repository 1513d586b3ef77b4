"""What is known of each algorithm: its recipe, facts, and results in the zoo.

No recipe is imported: griffe reads recipes and the zoo.
"""

import ast
import functools
import json
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import griffe

DOCS = Path(__file__).parents[1]
EXAMPLES = DOCS.parent / "examples"
FACTS = tomllib.loads((DOCS / "algorithms.toml").read_text("utf-8"))
SHAPES = json.loads((DOCS / "shapes.json").read_text("utf-8"))
RESULTS = json.loads((EXAMPLES / "zoo/results.json").read_text("utf-8"))
RECIPES, ZOO = (griffe.load(x, search_paths=[EXAMPLES]) for x in ("recipes", "zoo"))
DOCSTRING = (
    r"(?P<notes>.*?) ?(?:\bSource: (?P<source>.*?))? ?"
    r"(?:\bUsual(?: \((?P<usual_from>.*?)\))?: (?P<usual>.*))?"
)
NETWORK = r"`apply\b[^`]*`.*?\.(?= |$)"
FIELD = r"\b(?:batch|expert|step|data|chosen|rejected)\.([a-z]\w*\b)(?!\()"


class Algorithm(NamedTuple):
    """An algorithm, by its name in the zoo."""

    name: str
    functions: tuple[griffe.Function, ...]
    facts: dict
    results: dict  # Family, task and numbers of the zoo.

    @property
    def helpers(self):
        """List what the functions use, by their files."""
        used = [x for x in needs(self.functions) if x not in self.functions]
        return sorted(used, key=lambda x: str(x.relative_package_filepath))

    @property
    def code(self):
        """Return the source of all that the algorithm needs."""
        return "\n\n\n".join(map(code, [*self.functions, *self.helpers]))

    @property
    def names(self):
        """List the functions of the library that the code uses."""
        return list(dict.fromkeys(re.findall(r"\brlaxlib\.(\w+)", self.code)))

    @property
    def modules(self):
        """List the files of the code, first that of the functions."""
        return list(dict.fromkeys(x.module for x in needs(self.functions)[::-1]))

    @property
    def imports(self):
        """Return the lines that import what the code uses from other packages."""
        text = "\n".join(module.source for module in self.modules)
        lines = set(re.findall(r"^(?:import|from (?!\.)).*", text, re.M))
        words = set(re.findall(r"\w+", self.code))
        used = [x for x in lines if words.intersection(re.findall(r"\w+(?=,|$)", x))]
        return "\n".join(sorted(used, key=lambda line: ("rlaxlib" in line, line)))

    @property
    def fields(self):
        """Return the fields of the batch that the code reads, and what they hold."""
        known = {}
        for module in self.modules:
            text = module.docstring.value
            for names, what in re.findall(r"^    (\w[\w, ]*?)  +(.+)", text, re.M):
                known = dict.fromkeys(names.split(", "), what.rstrip(",.")) | known
        known = FACTS["fields"] | known | self.facts.get("fields", {})
        read = dict.fromkeys(re.findall(FIELD, self.code))
        return {name: known.get(name, "see above") for name in read}

    def shape(self, field):
        """Return the shapes of a field in batches that run, or as the text has it."""
        stated = re.findall(r"\[[A-Z].*?\]", self.fields[field])[:1]
        if "sample_mask" in self.fields and "T" not in "".join(stated):
            stated = [x.replace("[B", "[B, T") for x in stated]
        return " or ".join(SHAPES.get(self.name, {}).get(field, stated))

    @property
    def rows(self):
        """Return the names of fields, by their shapes and what they hold."""
        rows = {}
        for name, text in self.fields.items():
            shape = r",? (or )?\[[A-Z].*?\]( for (the )?\w+( and \w+)?)?"
            contents = re.sub(shape, "", text)
            rows.setdefault((self.shape(name), contents), []).append(name)
        return rows

    @property
    def network(self):
        """Return what docstrings say of `apply`, or what its file has in common."""
        found = dict.fromkeys(x for f in self.functions for x in parts(f)["network"])
        known = FACTS["networks"].get(self.functions[0].module.name, "")
        is_whole = any(re.match(r"`apply[`(]", each) for each in found)
        return " ".join(found if is_whole else [known, *found])


def parts(function):
    """Return the parts of a docstring, in Markdown."""
    what, _, rest = function.docstring.value.partition("\n\n")
    found = re.fullmatch(DOCSTRING, " ".join(rest.split())).groupdict("")
    what = " ".join(what.split())
    found["network"] = re.findall(NETWORK, f"{what} {found['notes']}")
    return {"what": what} | found | {"notes": re.sub(NETWORK, "", found["notes"])}


def code(thing):
    """Return source without the docstring, which the page shows as text."""
    return re.sub(r'\n    """.*?"""\n+(?= )', "\n", thing.source, count=1, flags=re.S)


def uses(source, module):
    """List what code uses of its module, and what that imports of the same folder."""
    names = [x for x in ast.walk(ast.parse(source)) if isinstance(x, ast.Name)]
    own = {x.id for x in names if isinstance(x.ctx, ast.Store)}
    used = [module[x.id] for x in names if x.id in module.members.keys() - own]
    known = [x for x in used if x.kind.value in {"attribute", "class", "function"}]
    return [x.final_target if x.is_alias else x for x in known]


def needs(things, users=()):
    """Return things, after all that they use but their users, each once."""
    ordered = (
        x
        for each in things
        if each not in users
        for x in [*needs(uses(each.source, each.module), (*users, each)), each]
    )
    return list(dict.fromkeys(ordered))


def training(name):
    """Return the code of the zoo that trains an algorithm, and its file."""
    form = rf'^    "{name}": (.*\n(?:     .*\n|    [)\]}}].*\n)*)'
    tables = [x["ENTRIES"] for x in ZOO.modules.values() if "ENTRIES" in x.members]
    (found,) = ((x.module, y) for x in tables for y in re.findall(form, x.source, re.M))
    module, text = found
    used, entry = uses(text, module), [f'ENTRIES = {{\n    "{name}": {text}}}']
    if elsewhere := re.match(r"(\w+)\.ENTRY\b", text):  # In a file of its own.
        module = module[elsewhere[1]].final_target
        used, entry = [module["ENTRY"]], []
    used = sorted(
        (x for x in needs(used) if x.module is module), key=lambda x: x.lineno
    )
    return module, "\n\n".join([x.source for x in used] + entry)


@functools.cache
def algorithms():
    """Return the algorithms of the zoo by name."""
    found = {}
    for name, results in RESULTS.items():
        functions = [RECIPES[x] for x in results["functions"]]
        facts = _facts(name, functions[0])
        functions += [RECIPES[x] for x in facts.get("also", ())]
        found[name] = Algorithm(name, tuple(functions), facts, results)
    return found


def _facts(name, function):
    """Return what is said of an algorithm, or what its file and docstring say."""
    about, file = parts(function)["what"], function.module.name
    derived = {"title": re.split("[:,.]", about)[0], "about": about}
    defaults = FACTS["defaults"].get(file, {"actions": "any", "data": "any"})
    return derived | defaults | FACTS["algorithms"].get(file, {}).get(name, {})
