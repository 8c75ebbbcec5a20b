"""Who runs a trial: claims that are created exclusively, beat while their holder lives, and go stale with it."""

from __future__ import annotations

import json
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from sweeps.checking import checked_beat
from sweeps.files import Files
from sweeps.process import Process

STALE_SECONDS: Final = 60.0
HEARTBEAT_SECONDS: Final = 10.0
_CLAIM = re.compile(r"claim-([0-9]{1,9})\.json")


@dataclass(frozen=True)
class Holder:
    """A process that runs a trial, and since when (seconds since 1970 of its own clock)."""

    process: Process
    since: float
    launch: str = ""  # the launch that it belongs to

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since)) if self.since else "unknown"
        return f"{self.process} since {since}"


@dataclass
class Claim:
    """The right to run one trial, until a higher generation exists."""

    claims: Claims
    trial_id: str
    generation: int
    launch: str = ""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    since: float = field(default_factory=time.time)
    beats: int = 0
    released: bool = False

    @property
    def path(self) -> str:
        """The claim's file in the Store."""
        return f"trials/{self.trial_id}/claim-{self.generation}.json"

    def content(self) -> bytes:
        """What the file says: who, since when, how alive."""
        said = {
            "token": self.token,
            "beats": self.beats,
            "released": self.released,
            "process": vars(Process.this()),
            "since": self.since,
            "launch": self.launch,
            "time": time.time(),
        }
        return json.dumps(said).encode()

    def is_held(self) -> bool:
        """True while nobody has taken over."""
        return self.claims.generation(self.trial_id) == self.generation

    def beat(self) -> None:
        """Show that the holder is alive."""
        self.beats += 1
        if not self.released and self.is_held():
            self.claims.files.write(self.path, self.content())

    def release(self) -> None:
        """Let go; the next claim needs no waiting."""
        self.released = True
        if self.is_held():
            self.claims.files.write(self.path, self.content())


@dataclass
class Claims:
    """The claims of a Store, as one observer sees them."""

    files: Files
    _seen: dict[str, tuple[Any, float]] = field(default_factory=dict, repr=False)

    def generation(self, trial_id: str) -> int:
        """The highest claim, 0 where there is none."""
        found = (_CLAIM.fullmatch(name) for name in self.files.names(f"trials/{trial_id}"))
        return max((int(match[1]) for match in found if match), default=0)

    def holder(self, trial_id: str, generation: int | None = None) -> Holder | None:
        """Who runs the trial now (by the highest claim, or by `generation`); None where nobody does or it is stale.

        Stale: its process is known to be dead, or its heartbeat has not changed for 60 s of this observer's clock.
        """
        generation = self.generation(trial_id) if generation is None else generation
        if not generation:
            return None
        path = f"trials/{trial_id}/claim-{generation}.json"
        return self.alive(path, self.files.read(path) or b"")

    def alive(self, path: str, content: bytes) -> Holder | None:
        """Who wrote a file that beats; None where that process is known to be gone."""
        beat, first_seen = self._seen.get(path, (None, 0.0))
        if beat != content:
            first_seen = time.monotonic()
            self._seen[path] = (content, first_seen)
        stale = time.monotonic() - first_seen > STALE_SECONDS
        said = checked_beat(content)
        if said is None:
            holder, released = Holder(Process("an unknown host", "", "", 0, 0), 0.0), False
        else:
            who = said["process"]
            process = Process(who["host"], who["boot"], who["namespace"], who["pid"], who["started"])
            holder, released = Holder(process, said.get("since", 0.0), said.get("launch", "")), said["released"]
        return None if released or holder.process.is_dead() or stale else holder

    def claim(self, trial_id: str, *, over: int = 0, launch: str = "") -> Claim | None:
        """Claim the trial; None where another process holds it or was faster.

        `over` is a generation that the caller has seen go stale. A launch hands a trial to one worker at a time: what
        holds it in the name of the same `launch` is a worker that the launch has lost.
        """
        generation = self.generation(trial_id)
        if generation != over:
            holder = self.holder(trial_id, generation)
            if holder is not None and (not launch or holder.launch != launch):
                return None
        claim = Claim(self, trial_id, generation + 1, launch)
        return claim if self.files.create(claim.path, claim.content()) else None
