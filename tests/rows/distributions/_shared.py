"""Definitions and arguments that rows of `distributions` share."""

import operator

BATCH, DIMENSIONS = 5, 3


RANDOM = "what is drawn depends on the key"


def made(factory, *arguments, **settings):
    """Return how to find a function of a distribution with these settings."""

    def of(function):
        return lambda library: operator.attrgetter(function)(
            getattr(library, factory)(*arguments, **settings)
        )

    return of
