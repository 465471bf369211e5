"""`git:PATH`: the history of a git repository as a stream, read by git itself and without any network.

    git:PATH                 author -> file, an event for each file of a commit: what will somebody touch next?
    git:PATH?links=authors   file -> author, the same events asked the other way: who should review a file?
    git:PATH?links=pairs     file - file, an event of two equals for each pair of files of a commit

Merges have no changes of their own and are left out. A renamed file is an event on its new path, marked as renamed,
and one on the old path, marked as deleted. The time of a commit is when it was committed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsnn.data.events import EventStream, keys_of, make_stream
from tsnn.errors import InputError
from tsnn.random import random_words

LINKS = ("files", "authors", "pairs")  # what a question is answered with, as a rule of the address
STATUS = ("A", "M", "D", "R", "T")  # added, modified, deleted, renamed, of another type: one number each
CODE = 4  # numbers that stand for an extension, drawn from its name
LARGE = 20  # files of a commit beyond which its pairs say nothing
_COMMIT, _FIELD = "\x1e", "\x1f"
_LOG = (
    *("log", "HEAD", "--topo-order", "--reverse", "--no-merges", "--root", "--raw", "--numstat", "-z", "-M"),
    *("--no-abbrev", "--no-color", "--no-ext-diff", "--no-textconv", "--no-show-signature"),
    f"--format={_COMMIT}%H{_FIELD}%ct{_FIELD}%aN{_FIELD}%ae",
)
_QUIET = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none"}


class Change(NamedTuple):
    """What a commit did to a file."""

    commit: str
    author: str
    t: int  # seconds since 1970
    path: str
    status: str
    added: int  # lines; 0 of a binary file
    removed: int
    is_binary: bool
    files: int  # of the commit


def load_git(address: str) -> EventStream:
    """The stream of a repository, by what stands behind `git:`."""
    path, links = _parse(address)
    repository = Path(path)
    if not repository.is_dir():
        raise InputError(f"there is no folder {repository}; give the path of a git repository.")
    changes = [change for commit in _commits(repository) for change in commit]
    changes.sort(key=lambda change: change.t)  # stable: commits of one time stay in the order of history
    if not changes:
        raise InputError(f"no commit of {repository} changes a file; give a repository with a history.")
    name = f"git:{repository.resolve()}" + (f"?links={links}" if links != LINKS[0] else "")
    if links == "pairs":
        return _of_pairs(changes, name, repository)
    return _of_authors(changes, name, turned=links == "authors")


def _parse(address: str) -> tuple[str, str]:
    path, _, option = address.partition("?")
    key, _, links = (option or f"links={LINKS[0]}").partition("=")
    if key != "links" or links not in LINKS:
        raise InputError(f"git:{address} is not understood; write git:PATH, or git:PATH?links=authors (or pairs).")
    return path or ".", links


def _of_authors(changes: list[Change], name: str, turned: bool) -> EventStream:
    """An author and a file with the same name stay two."""
    paths = {change.path for change in changes}
    authors = [f"{change.author} (author)" if change.author in paths else change.author for change in changes]
    types = dict.fromkeys(authors, "author") | dict.fromkeys(paths, "file")
    ends = (authors, [change.path for change in changes])
    src, dst = ends[::-1] if turned else ends
    return make_stream(src, dst, _dates(changes), features(changes), node_type=types, name=name)


def _of_pairs(changes: list[Change], name: str, repository: Path) -> EventStream:
    """Files of one commit, which stand beside each other once changes are sorted."""
    src: list[str] = []
    dst: list[str] = []
    of: list[Change] = []
    msg: list[NDArray[np.float32]] = []
    rows, own = features(changes), 0
    while own < len(changes):
        last = own
        while last < len(changes) and changes[last].commit == changes[own].commit:
            last += 1
        if last - own <= LARGE:
            for a, b in combinations(range(own, last), 2):
                if changes[a].path != changes[b].path:
                    src.append(changes[a].path)
                    dst.append(changes[b].path)
                    of.append(changes[a])
                    msg.append((rows[a] + rows[b]) / 2)
        own = last
    if not src:
        raise InputError(f"no commit of {repository} changes two to {LARGE} files; leave out ?links=pairs.")
    return make_stream(src, dst, _dates(of), np.array(msg), name=name, undirected=True)


def _dates(changes: list[Change]) -> NDArray[np.datetime64]:
    return np.array([change.t for change in changes], "datetime64[s]").astype("datetime64[us]")


def features(changes: list[Change]) -> NDArray[np.float32]:
    """Of each change its status, its size in logarithms, whether it is binary, the commit's size, the extension.

    Every number follows from the row alone, so a later commit changes none of them.
    """
    status = np.array([[change.status == known for known in STATUS] for change in changes], np.float32)
    sizes = np.log1p([[change.added, change.removed, change.files] for change in changes])
    binary = np.array([[change.is_binary] for change in changes])
    extensions = sorted({_extension(change.path) for change in changes})
    place = {extension: i for i, extension in enumerate(extensions)}
    codes = (random_words(0, keys_of(extensions), CODE) >> np.uint64(63)).astype(np.float32) * 2 - 1
    code = codes[[place[_extension(change.path)] for change in changes]]
    return np.concatenate([status, sizes, binary, code], axis=1).astype(np.float32)


def _extension(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _commits(repository: Path) -> Iterator[list[Change]]:
    """The changes of every commit, oldest first."""
    if not _git(repository, "rev-list", "--all", "--max-count=1").strip():
        raise InputError(f"{repository} has no commit yet; give a repository with a history.")
    cut_off = _cut_off(repository)
    told = _git(repository, *_LOG)
    commits = [part for part in told.split(_COMMIT) if part]
    known = [part for part in commits if part.partition(_FIELD)[0] not in cut_off]
    if not known:
        raise InputError(f"{repository} is a shallow clone without history; fetch it with git fetch --unshallow.")
    for part in known:
        yield _changes(part)


def _cut_off(repository: Path) -> set[str]:
    """Commits whose parents a shallow clone lacks: git takes every file of theirs for added."""
    if _git(repository, "rev-parse", "--is-shallow-repository").strip() != "true":
        return set()
    path = Path(_git(repository, "rev-parse", "--git-path", "shallow").strip())
    return set((path if path.is_absolute() else repository / path).read_text().split())


def _changes(told: str) -> list[Change]:
    """A commit as `git log --raw --numstat -z` tells it: a line of its own, then statuses, then sizes."""
    fields = told.split("\0")
    commit, when, author, email = fields[0].split(_FIELD)
    statuses: dict[str, str] = {}
    gone: list[str] = []
    sizes: dict[str, tuple[int, int, bool]] = {}
    rest = iter(field.lstrip("\n") for field in fields[1:])
    for field in rest:
        if field.startswith(":"):
            status, path = field.split()[4][:1], next(rest)
            if status in "RC":
                if status == "R":
                    gone.append(path)
                status, path = ("R" if status == "R" else "A"), next(rest)
            statuses[path] = status if status in STATUS else "M"
        elif field:
            added, removed, path = field.split("\t", 2)
            if not path:  # renamed: the old path, then the new one
                _, path = next(rest), next(rest)
            binary = added == "-"
            sizes[path] = (0, 0, True) if binary else (int(added), int(removed), False)
    statuses |= {path: "D" for path in gone if path not in statuses}
    number = len(statuses)
    return [
        Change(commit, author or email or "unknown", int(when), path, status, *sizes.get(path, (0, 0, False)), number)
        for path, status in statuses.items()
    ]


def _git(repository: Path, *words: str) -> str:
    """What git answers; it may ask nobody, fetch nothing and lock nothing."""
    command = ["git", "-c", "core.quotepath=off", "-c", "log.mailmap=true", "-C", str(repository), *words]
    try:
        done = subprocess.run(command, capture_output=True, env={**os.environ, **_QUIET}, check=False)
    except FileNotFoundError:
        raise InputError(
            "git is not installed, and the history of a repository is read with it; install git."
        ) from None
    if done.returncode:
        said = (done.stderr.decode(errors="replace").strip().splitlines() or ["it gave no reason"])[0]
        reason = said.removeprefix("fatal: ").rstrip(".")
        raise InputError(f"git cannot read {repository} ({reason}); give the path of a git repository.")
    return done.stdout.decode(errors="replace")
