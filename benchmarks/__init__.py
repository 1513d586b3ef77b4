"""How fast rlaxlib is beside rlax: see `README.md` in this folder."""
