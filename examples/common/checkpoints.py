"""Keep a run in a folder, to go on with it; be it spread over several processes."""

from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp


class Checkpoints:
    """The latest state of a run: a tree of arrays, and notes beside it.

    Where several processes share arrays, all of them take each step together, and the
    folder is one that all of them see. Each writes the parts that lie on its devices. A
    checkpoint takes its name when it is whole; one that was cut short does not count.
    """

    def __init__(self, folder: str | Path):
        options = ocp.CheckpointManagerOptions(
            max_to_keep=1,
            cleanup_tmp_directories=True,
            enable_async_checkpointing=False,  # What is saved is there.
        )
        self._manager = ocp.CheckpointManager(Path(folder).absolute(), options=options)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.close()

    def save(self, step: int, tree: Any, notes: Any) -> None:
        """Keep a tree of arrays, and notes that JSON can write, and no earlier ones."""
        args = ocp.args.Composite(
            tree=ocp.args.StandardSave(tree), notes=ocp.args.JsonSave(notes)
        )
        self._manager.save(step, args=args)

    def latest(self) -> tuple[int, Any] | None:
        """Return the step and the notes of what was saved last, if anything was."""
        step = self._manager.latest_step()
        if step is None:
            return None
        args = ocp.args.Composite(notes=ocp.args.JsonRestore())
        return step, self._manager.restore(step, args=args)["notes"]

    def restore(self, like: Any) -> Any:
        """Return the tree that was saved last.

        Args:
            like: A tree of arrays of the same shapes, that lie where the restored ones
                are to lie. These may be other devices than those of before.
        """
        args = ocp.args.Composite(tree=ocp.args.StandardRestore(like))
        return self._manager.restore(self._manager.latest_step(), args=args)["tree"]

    def clear(self) -> None:
        """Forget what was saved."""
        for step in self._manager.all_steps():
            self._manager.delete(step)
