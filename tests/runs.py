"""Check the reproducibility and the output of examples on Catch."""

import csv
import dataclasses


def check_that_one_repeats_and_is_written(example, config, folder):
    """Train twice with one seed, where one run writes files, and with another seed."""
    config = dataclasses.replace(config, output=str(folder))
    curve = example.train(config)
    assert curve != example.train(dataclasses.replace(config, seed=1))
    example.main(config)
    with open(folder / "curve.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["episode", "train_return", "eval_return"]
    assert [tuple(map(float, row)) for row in rows] == curve
    assert (folder / "curve.svg").read_bytes().startswith(b"<?xml")
