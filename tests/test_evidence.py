"""Test the lines of `docs/trust.md`: they are what the reports of pytest say."""

import subprocess
import sys

import evidence

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_passes(number):
    pass

@pytest.mark.skip
def test_is_skipped():
    pass

def test_fails():
    raise ValueError

@pytest.fixture
def broken():
    raise ValueError

def test_has_no_fixture(broken):
    pass
"""
PAGE = """before
<!-- evidence: start -->
old
<!-- evidence: end -->
after"""


def test_lines_are_those_of_the_reports(tmp_path):
    folder, page = tmp_path / "abc1234", tmp_path / "trust.md"
    (tmp_path / "test_some.py").write_text(TESTS)
    page.write_text(PAGE)
    names = ["-p", "no:cacheprovider", "-o", f"junit_suite_name={evidence.versions()}"]
    report = f"--junitxml={folder / 'rows.xml'}"
    pytest = [sys.executable, "-m", "pytest", "-n", "0", *names, report, "test_some.py"]
    subprocess.run(pytest, cwd=tmp_path, check=False, capture_output=True)
    (folder / "mutants.md").write_text("With seed 1, 40 of 40 mutants are killed.\n")
    evidence.write(folder, page)
    before, _, commit, *rest, mutants, _, after = page.read_text().splitlines()
    assert (before, after) == ("before", "after")
    assert commit.startswith("Commit `abc1234`, 20")
    assert evidence.versions().startswith(sys.version.split()[0])
    counts = f"| {evidence.versions()} | 3 | 1 | 2 | "
    assert [counts in line for line in rest].count(True) == 1
    assert mutants == "With seed 1, 40 of 40 mutants are killed."
    # Parts that ran elsewhere stay, those of another commit do not.
    written = page.read_text()
    (folder / "mutants.md").unlink()
    (folder / "rows.xml").rename(folder / "cover.xml")
    evidence.write(folder, page)
    assert set(written.splitlines()) < set(page.read_text().splitlines())
    evidence.write(folder.rename(tmp_path / "def5678"), page)
    assert "With seed" not in page.read_text()
    assert page.read_text().count(counts) == 1


def test_every_part_that_make_reports_has_a_line():
    makefile = (evidence.ROOT / "Makefile").read_text()
    named = {part for part in evidence.PARTS if f"$(call report,{part})" in makefile}
    compat = {"compat-oldest", "compat-newest"}
    assert named | compat == set(evidence.PARTS)
    assert makefile.count("$(call report,") == len(named) + 1  # One for both of compat.


def test_the_page_has_the_marks(tmp_path):
    copy = tmp_path / "trust.md"
    copy.write_text(evidence.PAGE.read_text("utf-8"), "utf-8")
    (tmp_path / "abc1234").mkdir()
    evidence.write(tmp_path / "abc1234", copy)
    assert "Commit `abc1234`" in copy.read_text("utf-8")
