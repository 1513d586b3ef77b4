"""Make a dataclass the command line of an example."""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from absl import app, flags


def flag(default: Any, description: str) -> Any:
    """Describe a field of a config, to make it a flag of the command line as well."""
    return dataclasses.field(default=default, metadata={"help": description})


def run(main: Callable[[Any], None], config_class: type) -> None:
    """Read a config from the command line, and call `main` with it.

    Args:
        main: What the example does with a config.
        config_class: A dataclass whose fields are made by `flag`, each a flag of its
            name: an int, a float, a str or a bool.
    """
    define = {
        bool: flags.DEFINE_bool,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        str: flags.DEFINE_string,
    }
    fields = dataclasses.fields(config_class)
    for field in fields:
        define[field.type](field.name, field.default, field.metadata["help"])

    def read(argv: list[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f"Unknown arguments: {argv[1:]}")
        main(
            config_class(**{each.name: flags.FLAGS[each.name].value for each in fields})
        )

    # Some libraries tell of each file that they touch: `--verbosity=0` is for that.
    app.run(read, [sys.argv[0], "--verbosity=-1", *sys.argv[1:]])
