"""A row of the benchmarks: a function, and what to call it with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.inputs import Input, Size


class MissingFunctionError(LookupError):
    """A library has no function of this name."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A function of one stream, its arguments, and the sizes to measure it at.

    Attributes:
        name: Name of the function in the library. If it has a dot, what precedes it is
            called first, and what follows it belongs to the object that this returns.
        inputs: Arrays of one stream, under the names of their arguments.
        sizes: How many streams there are, and how long they are.
        settings: Arguments that are no arrays of a stream.
        of: Settings of what precedes the dot.
        label: What tells this row from others of the same function.
        smooth: Whether the function has a gradient worth computing.
        positional: Whether to pass all arguments by their place, settings last, as to
            all that has a dot in its name.
        peer: Module of rlax that has the function, if `rlax` itself does not.
        step: A whole step of training, made from a library in place of one function of
            it. It takes all streams at once.
    """

    name: str
    inputs: Mapping[str, Input]
    sizes: tuple[Size, ...]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    of: Mapping[str, Any] = field(default_factory=dict[str, Any])
    label: str = ""
    smooth: bool = True
    positional: bool = False
    peer: str = ""
    step: Callable[[Any], Callable[..., Any]] | None = None

    @property
    def title(self) -> str:
        """Return the name that tables show."""
        return f"{self.name}, {self.label}" if self.label else self.name

    @property
    def axes(self) -> set[str]:
        """Return the names of the axes that the inputs have."""
        return set(" ".join(each.axes for each in self.inputs.values()).split())

    @property
    def random(self) -> bool:
        """Tell whether the outputs are drawn at random."""
        return "key" in self.inputs

    def function(self, library: Any) -> Callable[..., Any]:
        """Return the function of one stream, the inputs being its only arguments.

        Args:
            library: Module in which to look for it.

        Returns:
            The function, which takes the inputs in their order.

        Raises:
            MissingFunctionError: If the library does not have it.
        """
        if self.step is not None:
            try:
                return self.step(library)
            except AttributeError as error:
                raise MissingFunctionError(self.name) from error
        name, _, method = self.name.partition(".")
        function = getattr(library, name, None)
        if function is None:
            raise MissingFunctionError(name)
        if method:
            function = getattr(function(**self.of), method)
        if method or self.positional:
            return lambda *arrays: function(*arrays, *self.settings.values())
        return lambda *arrays: function(
            **dict(zip(self.inputs, arrays, strict=True)), **self.settings
        )
