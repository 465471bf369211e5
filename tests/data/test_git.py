"""Git repositories as streams: what each kind of history becomes, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.repositories import START, Repository
from tsnn.data.events import EventStream
from tsnn.data.git import STATUS, load_git
from tsnn.errors import InputError
from tsnn.evaluation.catalog import default_split, load

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "project")


def rows(stream: EventStream) -> list[tuple[str, str, str]]:
    """Source, destination and status of every event."""
    assert stream.msg is not None
    name = stream.ids.external
    status = [STATUS[i] for i in stream.msg[:, : len(STATUS)].argmax(1)]
    return [(name[u], name[v], s) for u, v, s in zip(stream.src, stream.dst, status, strict=True)]


def test_every_changed_file_is_an_event(repository: Repository) -> None:
    repository.commit("ann", a_py="1\n2\n", b_md="text\n")
    repository.commit("bob", a_py="1\n3\n4\n")
    repository.commit("ann", b_md=None)
    stream = load(f"git:{repository.folder}")
    assert rows(stream) == [
        ("ann", "a.py", "A"),
        ("ann", "b.md", "A"),
        ("bob", "a.py", "M"),
        ("ann", "b.md", "D"),
    ]
    assert stream.description.dates
    assert (stream.t // 1_000_000).tolist() == [START, START, START + 60, START + 120]
    assert stream.msg is not None
    np.testing.assert_allclose(stream.msg[:, 5:8], np.log1p([[2, 0, 2], [1, 0, 2], [2, 1, 1], [0, 1, 1]]), rtol=1e-6)
    assert stream.description.types == ("author", "file")
    assert load(stream.name).fingerprint() == stream.fingerprint()


def test_a_later_commit_changes_no_earlier_row(repository: Repository) -> None:
    repository.commit("ann", a_py="1\n")
    before = load_git(str(repository.folder)).msg
    repository.commit("bob", b_rs="1\n")
    after = load_git(str(repository.folder)).msg
    assert before is not None
    assert after is not None
    np.testing.assert_array_equal(before, after[:1])


def test_renames_binary_files_and_odd_names(repository: Repository) -> None:
    text = "".join(f"line {i}\n" for i in range(20))
    repository.commit("ann", old_py=text, picture_png=b"\x00\x01\x02" * 50)
    (repository.folder / "old.py").rename(repository.folder / "new ümlaut\tname.py")
    repository.commit("bob")
    stream = load_git(str(repository.folder))
    assert rows(stream)[2:] == [("bob", "new ümlaut\tname.py", "R"), ("bob", "old.py", "D")]
    assert stream.msg is not None
    assert stream.msg[:, 8].tolist() == [0, 1, 0, 0]


def test_merges_say_nothing_and_branches_stand_in_order_of_time(repository: Repository) -> None:
    repository.commit("ann", a_py="1\n")
    repository.git("checkout", "-q", "-b", "side")
    repository.commit("bob", b_py="1\n")
    repository.git("checkout", "-q", "main")
    repository.commit("ann", c_py="1\n")
    repository.git("merge", "-q", "--no-ff", "-m", "merged", "side")
    stream = load_git(str(repository.folder))
    assert [row[:2] for row in rows(stream)] == [("ann", "a.py"), ("bob", "b.py"), ("ann", "c.py")]


def test_the_other_ways_to_link(repository: Repository) -> None:
    repository.commit("ann", a_py="1\n", b_py="1\n", c_py="1\n")
    repository.commit("bob", a_py="2\n", b_py="2\n")
    turned = load_git(f"{repository.folder}?links=authors")
    assert rows(turned)[0] == ("a.py", "ann", "A")
    pairs = load(f"git:{repository.folder}?links=pairs")
    assert pairs.undirected
    names = pairs.ids.external
    found = [{names[u], names[v]} for u, v in zip(pairs.src, pairs.dst, strict=True)]
    assert found == [{"a.py", "b.py"}, {"a.py", "c.py"}, {"b.py", "c.py"}, {"a.py", "b.py"}]
    assert load(pairs.name).fingerprint() == pairs.fingerprint()


def test_an_author_who_is_called_like_a_file(repository: Repository) -> None:
    repository.commit("a.py", a_py="1\n")
    assert rows(load_git(str(repository.folder))) == [("a.py (author)", "a.py", "A")]


def test_a_shallow_clone_has_the_commits_it_has(repository: Repository, tmp_path: Path) -> None:
    for i in range(4):
        repository.commit("ann", a_py=f"{i}\n", b_py=f"{i // 2}\n")
    for depth in (1, 3):
        repository.git("clone", "-q", "--depth", str(depth), repository.folder.as_uri(), str(tmp_path / str(depth)))
    assert [row[2] for row in rows(load_git(str(tmp_path / "3")))] == ["M", "M", "M"]
    with pytest.raises(InputError, match="is a shallow clone without history; fetch it with git fetch --unshallow"):
        load_git(str(tmp_path / "1"))


def test_it_can_be_split_and_asked(repository: Repository) -> None:
    for i in range(20):
        repository.commit("ann" if i % 2 else "bob", **{f"f{i % 5}_py": f"{i}\n"})
    split = default_split(f"git:{repository.folder}")
    assert split.stream.num_events == 20


def test_what_is_no_history_is_refused(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="has no commit yet"):
        load_git(str(repository.folder))
    repository.git("commit", "-q", "--allow-empty", "-m", "nothing")
    with pytest.raises(InputError, match=r"no commit of .* changes a file"):
        load_git(str(repository.folder))
    with pytest.raises(InputError, match="there is no folder"):
        load_git(str(tmp_path / "nowhere"))
    repository.commit("ann", a_py="1\n")
    with pytest.raises(InputError, match=r"no commit of .* changes two to 20 files"):
        load_git(f"{repository.folder}?links=pairs")
    with pytest.raises(InputError, match=r"is not understood; write git:PATH"):
        load_git(f"{repository.folder}?link=pairs")
    plain = tmp_path / "plain"
    plain.mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    with pytest.raises(InputError, match=r"git cannot read .*plain \(not a git repository"):
        load_git(str(plain))
    monkeypatch.setenv("PATH", str(plain))
    with pytest.raises(InputError, match="git is not installed"):
        load_git(str(repository.folder))
