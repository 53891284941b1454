"""What the files of base and head require of a commit."""

import pytest

from gpurun.domain.ids import ImageTag
from gpurun.domain.lock import ImagePin, Lock, LockedImage
from gpurun.plan.gate import MAX_BY_HEAD, Folder, Side, Touched, look, names_what_moves
from gpurun.plan.paths import touched

SMOKE = "{image: 'ghcr.io/org/app:1.2', run: python smoke.py, limits: {max_duration: 10m}, required: true%s}"


def text(*, more="", **jobs):
    jobs = {"smoke": SMOKE % more} | jobs
    return "version: 1\njobs:\n" + "".join(f"  {name}: {job}\n" for name, job in jobs.items() if job)


BASE = text()


def found(base=BASE, head=BASE, *, folder="", paths=("src/a.py",), all_there=True, **locks):
    both = Folder(folder=folder, base=Side(text=base), head=Side(text=head), **locks)
    return look([both], Touched(paths=paths, all_there=all_there), base_ref="main")


def lock(digit):
    image = LockedImage(
        ref=ImageTag("ghcr.io/org/app:1.2"), pin=ImagePin(digest="sha256:" + digit * 64), locked_on="2026-12-01"
    )
    return Lock(images=(image,))


def test_a_required_job_that_stays_as_it_is():
    (needed,) = found().needed
    assert (needed.job, needed.folder, needed.applies, needed.by_head) == ("smoke", "", True, False)
    assert (needed.gone, needed.changed, needed.fault) == (False, (), "")
    assert found().base_ref == "main"


def test_nothing_is_required_where_nobody_says_so():
    plain = BASE.replace(", required: true", "")
    for base, head in ((plain, plain), (None, None), (None, plain)):
        assert found(base, head).needed == ()
    assert found(BASE.replace("required: true", "required: false")).needed != found().needed


@pytest.mark.parametrize(
    ("head", "key"),
    [
        (BASE.replace("required: true", "required: false"), "required"),
        (BASE.replace(", required: true", ""), "required"),
        (BASE.replace("python smoke.py", "'true'"), "run"),
        (BASE.replace("10m", "2h"), "limits"),
        (text(more=", paths: [docs]"), "paths"),
        (text(more=", models: [{id: org/other}]"), "models"),
        (text(smoke="", other=SMOKE % ""), "job"),
        (None, "job"),
    ],
)
def test_what_the_head_takes_away_is_told(head, key):
    needed = found(head=head).needed[0]
    assert [one.key for one in needed.changed] == [key]
    assert needed.gone is (key == "job")


def test_only_another_pin_in_the_lock_is_a_change():
    needed = found(base_lock=lock("a"), head_lock=lock("b")).needed[0]
    assert [one.key for one in needed.changed] == ["image"]
    assert found(base_lock=lock("a"), head_lock=lock("a")).needed[0].changed == ()
    assert names_what_moves(Folder(folder="", base=Side(text=BASE), head=Side(text=BASE)))
    assert not names_what_moves(Folder(folder="", base=Side(text=None), head=Side(text=BASE)))


def test_a_head_that_nobody_can_read_leaves_what_is_required_and_says_where():
    seen = found(head=BASE.replace("image:", "imag:"))
    assert seen.needed[0].fault.startswith("`.gpurun.yml` of this commit cannot be read: line 3: ")
    assert [(fault.file, fault.line) for fault in seen.faults] == [(".gpurun.yml", 3)]
    assert seen.fault == ""


def test_a_base_that_nobody_can_read_is_a_fault():
    seen = found(base="jobs: [", head=BASE)
    assert seen.needed == ()
    assert "`.gpurun.yml` of the base branch cannot be read" in seen.fault
    gone = look([Folder(folder="", base=Side(fault="it is too large."))], Touched(paths=()), base_ref="main")
    assert "it is too large." in gone.fault


def test_the_head_may_add():
    seen = found(base=None, head=BASE)
    assert [(one.job, one.by_head, one.changed) for one in seen.needed] == [("smoke", True, ())]
    many = text(**{f"job{number}": SMOKE % "" for number in range(MAX_BY_HEAD + 5)})
    assert sum(one.by_head for one in found(head=many).needed) == MAX_BY_HEAD
    assert found(head=many).needed[0].job == "smoke"


def test_paths_are_those_of_the_base_and_from_the_folder_of_the_file():
    narrow = text(more=", paths: [src, '*.toml']")
    assert found(narrow, narrow, paths=("src/deep/a.py",)).needed[0].applies
    assert not found(narrow, narrow, paths=("docs/a.md",)).needed[0].applies
    assert found(narrow, text(more=", paths: [docs]"), paths=("src/a.py",)).needed[0].applies
    assert found(narrow, narrow, folder="sub", paths=("sub/pyproject.toml",)).needed[0].applies
    assert not found(narrow, narrow, folder="sub", paths=("pyproject.toml", "sub/x")).needed[0].applies


def test_what_is_not_all_listed_applies_and_is_told():
    narrow = text(more=", paths: [src]")
    seen = found(narrow, narrow, paths=("docs/a.md",), all_there=False)
    assert seen.needed[0].applies
    assert "may not be named here" in seen.unsure
    assert found(None, None, all_there=False).unsure == ""


@pytest.mark.parametrize(
    ("pattern", "path", "means"),
    [
        ("src", "src/a/b.py", True),
        ("src/**", "src/a/b.py", True),
        ("src/*", "src/a.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("**/*.py", "a/b/c.py", True),
        ("**", ".gpurun.yml", True),
        ("src", "source/a.py", False),
        ("./src", "src/a.py", True),
    ],
)
def test_the_grammar_of_paths(pattern, path, means):
    assert touched([path], "", [pattern]) is means


def test_too_much_to_compare_applies():
    assert touched(["docs/a"], "", ["src"], most=1)
    assert not touched(["other/a"], "sub", ["src"], most=1)
