"""Print flags with which XLA compiles fast and optimises less, for `XLA_FLAGS`.

Tests spend their time in compilation, which these flags halve; `make trust` runs most
of them without, as users compile. `python tests/compiler.py training` prints flags for
short trainings, which balance compilation and run time.
"""

import sys

import jax

TRAINING = {
    "xla_backend_optimization_level": 1,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
FLAGS = {
    "training": TRAINING,
    # Tests run in as many processes as there are cores.
    "tests": TRAINING
    | {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1},
}


def flags(purpose: str = "tests") -> list[str]:
    """Return the flags that this XLA knows: an unknown flag ends the process."""
    return [f"--{name}={x}" for name, x in FLAGS[purpose].items() if _has(name, x)]


def _has(name: str, value: bool | int) -> bool:
    """Return whether XLA has an option."""
    try:
        jax.jit(lambda x: x, compiler_options={name: value})(0)
    except jax.errors.JaxRuntimeError:
        return False
    return True


if __name__ == "__main__":
    print(*flags(*sys.argv[1:]))
