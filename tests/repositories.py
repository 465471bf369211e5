"""A git repository for tests: commits with fixed authors and times, made by git itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

START = 1_700_000_000


class Repository:
    """Commits one after the other, a minute apart."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.commits = 0
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str, author: str = "ann") -> str:
        """Run git there, as somebody, with no settings of this machine."""
        when = f"{START + 60 * self.commits} +0000"
        who = {f"GIT_{role}_NAME": author for role in ("AUTHOR", "COMMITTER")}
        who |= {f"GIT_{role}_EMAIL": f"{author}@example.org" for role in ("AUTHOR", "COMMITTER")}
        who |= {f"GIT_{role}_DATE": when for role in ("AUTHOR", "COMMITTER")}
        plain = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        done = subprocess.run(
            ["git", "-C", str(self.folder), *words], env={**os.environ, **who, **plain}, capture_output=True, check=True
        )
        return done.stdout.decode()

    def commit(self, author: str, **files: bytes | str | None) -> None:
        """A commit of these files (`_` stands for a dot); None deletes one."""
        for name, content in files.items():
            path = self.folder / name.replace("_", ".")
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a change", author=author)
        self.commits += 1
