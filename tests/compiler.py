"""Print flags with which XLA compiles fast and optimises little.

Most tests spend their time in compilation; these flags halve it. `make trust` runs
all tests without them, as users compile.
"""

import jax

FAST = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


def flags() -> list[str]:
    """Return the flags that this XLA knows: an unknown flag ends the process."""
    return [f"--{name}={value}" for name, value in FAST.items() if _has(name, value)]


def _has(name: str, value: bool | int) -> bool:
    """Return whether XLA has an option."""
    try:
        jax.jit(lambda x: x, compiler_options={name: value})(0)
    except jax.errors.JaxRuntimeError:
        return False
    return True


if __name__ == "__main__":
    print(*flags())
