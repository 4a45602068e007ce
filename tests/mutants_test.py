"""The list of faults fits the code."""

import ast
import pathlib

import pytest

from tests.mutants import __main__ as mutants
from tests.mutants import cover, drawn, equivalent, statements

LISTED = [(file, fault) for file, listed in mutants.FAULTS.items() for fault in listed]


@pytest.mark.parametrize(("file", "fault"), LISTED, ids=[fault.name for _, fault in LISTED])
def test_each_faults_text_stands_once_in_its_file(file, fault):
    text = (mutants.ROOT / file).read_text(encoding="utf-8")
    assert text.count(fault.old) == 1
    assert fault.new != fault.old


def test_fault_names_are_unique():
    assert len({fault.name for _, fault in LISTED}) == len(LISTED)


@pytest.mark.slow
def test_the_tests_that_faults_name_exist():
    code, output = mutants.run_tests(
        mutants.ROOT, "--collect-only", "-n", "0", *sorted({fault.tests for _, fault in LISTED})
    )
    assert code == 0, output


def test_mutants_are_drawn_of_every_module_and_meet_tests_that_exist():
    folders = {pathlib.PurePath(module).parent for module in cover.COVER} - {
        pathlib.PurePath("experiments/analysis")  # of which only significance and what it needs
    }
    there = {
        path.relative_to(mutants.ROOT).as_posix()
        for folder in folders
        for path in (mutants.ROOT / folder).glob("*.py")
        if path.read_text(encoding="utf-8").count("\n") > 2
    }
    assert there <= set(cover.COVER)
    for module in cover.COVER:
        assert (mutants.ROOT / module).exists()
        assert all((mutants.ROOT / cover.file_of(entry)).exists() for entry in cover.COVER[module])


def test_annotations_are_told_from_what_runs():
    source = "def f(x: int | None = 1 + 2) -> a.B:\n    y: str | int = x | 3\n"
    found = [
        source.splitlines()[a[0] - 1][a[1] : b[1]] for a, b in drawn.annotations(ast.parse(source))
    ]
    assert sorted(found) == ["a.B", "int | None", "str | int"]


def test_what_equivalent_mutants_change_stands_in_the_file():
    for module, listed in equivalent.EQUIVALENT.items():
        lines = {line.strip() for line in (mutants.ROOT / module).read_text("utf-8").splitlines()}
        for each in listed:
            assert each.old in lines
            assert equivalent.why(module, [f"-{each.old}", f"+    {each.new}"]) == each.why
            assert not equivalent.why(module, [f"-{each.old}", f"+{each.new}0"])


SOURCE = """
SIZE = 3

def f(x, y=1):
    if (
        x > 0
    ):
        z = [
            x
            for x in y
        ]
    else:
        z = SIZE
    return z
"""


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("SIZE = 3", "SIZE = 4", []),
        ("y=1", "y=2", []),
        ("x > 0", "x < 0", [5, 6, 7]),
        ("in y", "in []", [8, 9, 10, 11]),
        ("z = SIZE", "z = -SIZE", [13]),
        ("return z", "return -z", [14]),
    ],
)
def test_the_lines_of_a_changed_statement_are_its_own(old, new, lines):
    assert list(statements.changed_lines(SOURCE, SOURCE.replace(old, new))) == lines


def test_tests_that_run_a_statement_come_first_and_those_elsewhere_last():
    def test(seconds, lines, elsewhere=False):
        return statements.Test(seconds=seconds, elsewhere=elsewhere, lines={"m.py": lines})

    tests = {
        "slow_test.py::a": test(9.0, [5]),
        "quick_test.py::b": test(2.0, [4, 5]),
        "quick_test.py::c": test(1.0, [5]),
        "quick_test.py::d": test(0.1, [4]),
        "other_test.py::e": test(0.2, [], elsewhere=True),
    }
    found = statements.choose(tests, "m.py", range(5, 7))
    assert list(found) == ["quick_test.py::c", "quick_test.py::b", "slow_test.py::a", *[*tests][4:]]
    assert all(limit > tests[name]["seconds"] for name, limit in found.items())
    assert set(statements.choose(tests, "m.py", range(0))) == set(tests)
    assert list(statements.choose(tests, "n.py", range(5, 7))) == ["other_test.py::e"]
