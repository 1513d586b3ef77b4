"""What rows of several topics share."""

import functools

# --- Functions of a state, as functions of its fields. ---


def with_state(name, kind):
    """Find a function, as one of the fields of its state under the names of errors."""

    def find(library):
        state_of = getattr(library, kind)

        def call(**arguments):
            given = [x for x in state_of._fields if f"state.{x}" in arguments]
            state = state_of(**{x: arguments.pop(f"state.{x}") for x in given})
            return getattr(library, name)(state=state, **arguments)

        return call

    return find


def of_fields(definition):
    """Turn a definition that takes fields into one of fields of a state."""

    @functools.wraps(definition)
    def define(**arguments):
        fields = {name.rpartition(".")[2]: x for name, x in arguments.items()}
        return definition(**fields)

    return define


def joined(*draws):
    """Return a function that draws the arguments of all these functions."""
    return lambda rng: {name: x for draw in draws for name, x in draw(rng).items()}
