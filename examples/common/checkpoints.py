"""Checkpoints of a run with arrays that may be sharded over processes."""

from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp


class Checkpoints:
    """The latest checkpoint of a run: a tree of arrays and JSON notes.

    If arrays are sharded over processes, all processes must call each method together,
    and the folder must be shared. Each process writes the shards on its devices.
    Incomplete checkpoints are ignored.
    """

    def __init__(self, folder: str | Path):
        options = ocp.CheckpointManagerOptions(
            max_to_keep=1,
            cleanup_tmp_directories=True,
            enable_async_checkpointing=False,  # `save` returns after the write.
        )
        self._manager = ocp.CheckpointManager(Path(folder).absolute(), options=options)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.close()

    def save(self, step: int, tree: Any, notes: Any) -> None:
        """Save a tree of arrays and JSON notes, and delete earlier checkpoints."""
        args = ocp.args.Composite(
            tree=ocp.args.StandardSave(tree), notes=ocp.args.JsonSave(notes)
        )
        self._manager.save(step, args=args)

    def latest(self) -> tuple[int, Any] | None:
        """Return the step and the notes of the latest checkpoint, or None."""
        step = self._manager.latest_step()
        if step is None:
            return None
        args = ocp.args.Composite(notes=ocp.args.JsonRestore())
        return step, self._manager.restore(step, args=args)["notes"]

    def restore(self, like: Any) -> Any:
        """Return the tree of the latest checkpoint.

        Args:
            like: Tree of arrays with the same shapes. The restored arrays get its
                shardings, which may be on other devices than the saved ones.
        """
        args = ocp.args.Composite(tree=ocp.args.StandardRestore(like))
        return self._manager.restore(self._manager.latest_step(), args=args)["tree"]

    def clear(self) -> None:
        """Delete all checkpoints."""
        for step in self._manager.all_steps():
            self._manager.delete(step)
