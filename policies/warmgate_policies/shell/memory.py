"""What is known of files: those written by this command, and those a session downloaded, decoded or was asked about earlier.

A file fetched in one command and run in the next is one flow; so the session's memory taints its paths.
"""

from __future__ import annotations

import fnmatch
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from warmgate_policies.shell.findings import Stream

MAX_SESSIONS = 4096
MAX_FILES = 2048


@dataclass(slots=True)
class Files:
    """Path → what was written there; folders whose whole content has one origin; folders that exist."""

    written: dict[str, Stream] = field(default_factory=dict[str, Stream])
    trees: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    folders: set[str] = field(default_factory=set[str])
    remotes: set[str] = field(default_factory=set[str])

    def copy(self) -> Files:
        """Files of their own."""
        return Files(dict(self.written), dict(self.trees), set(self.folders), set(self.remotes))

    def at(self, path: str | None) -> Stream | None:
        """What is known to be in ``path``."""
        if path is None:
            return None
        found = self.written.get(path)
        if found is not None:
            return found
        folder = path
        while folder not in ("", "/"):
            if folder in self.trees:
                return Stream(tags=self.trees[folder])
            folder = folder.rpartition("/")[0]  # empty in the end, also of a relative path (an unknown working directory)
        return None

    def matching(self, pattern: str) -> Stream | None:
        """What is known to be in files that a glob may name: their origins, the content no longer fixed."""
        tags: frozenset[str] = frozenset()
        found = False
        for path, stream in self.written.items():
            if fnmatch.fnmatchcase(path, pattern.replace("/**/", "/*")):
                found = True
                tags |= stream.tags
        return Stream(tags=tags) if found else self.at(pattern)

    def put(self, path: str, stream: Stream, *, append: bool = False) -> None:
        """Something was written to ``path``."""
        old = self.written.get(path)
        if append:
            text = old.text + stream.text if old is not None and old.text is not None and stream.text is not None else None
            stream = Stream(text, stream.tags | (old.tags if old is not None else frozenset[str]()))
        self.written[path] = stream

    def has_folder(self, path: str) -> bool:
        """Whether the folder was made in this session."""
        return path in self.folders


class Memory:
    """Sessions and what their files hold, bounded; taint only ever adds."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Files] = OrderedDict()
        self._lock = threading.Lock()

    def files(self, session: str | None) -> Files:
        """A copy of what is known of a session's files."""
        if session is None:
            return Files()
        with self._lock:
            known = self._sessions.get(session)
            return known.copy() if known is not None else Files()

    def learn(self, session: str | None, files: Files) -> None:
        """Keep the taint that a judged command would leave; literal contents are kept as unknown, since the command may not have run."""
        if session is None:
            return
        with self._lock:
            known = self._sessions.setdefault(session, Files())
            self._sessions.move_to_end(session)
            for path, stream in files.written.items():
                old = known.written.get(path)
                tags = stream.tags | (old.tags if old is not None else frozenset[str]())
                if tags and len(known.written) < MAX_FILES:
                    known.written[path] = Stream(tags=tags)
            for path, tags in files.trees.items():
                known.trees[path] = known.trees.get(path, frozenset[str]()) | tags
            known.remotes |= files.remotes
            while len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)

    def empty(self, session: str | None) -> bool:
        """Whether nothing is remembered, so that a verdict depends on the command alone."""
        return session is None or session not in self._sessions
