"""Command-line flags of an example, from the fields of a dataclass."""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from absl import app, flags


def flag(default: Any, description: str) -> Any:
    """Define a field of a config that is also a command-line flag."""
    return dataclasses.field(default=default, metadata={"help": description})


def run(main: Callable[[Any], None], config_class: type) -> None:
    """Parse a config from the command line and call `main` with it.

    Args:
        main: Main function of the example.
        config_class: Dataclass with fields defined by `flag`, of type int, float, str
            or bool.
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

    # Some libraries log each file access at the default verbosity.
    app.run(read, [sys.argv[0], "--verbosity=-1", *sys.argv[1:]])
