"""Which process runs a trial: leases with a heartbeat, and claims of trials that refer to them.

One lease is one running stack of a process, whatever its K: only its file has a heartbeat. A claim is created
exclusively, and is void with its lease. What the holder of a claim writes is fenced (`sweeps.store.files.Fence`) by the
claim's generation.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from polysweep.sweeps.store.checking import checked_beat, checked_claim
from polysweep.sweeps.store.files import Fence, Files, UnreadableError
from polysweep.sweeps.store.process import Process

STALE_SECONDS: Final = 60.0
HEARTBEAT_SECONDS: Final = 10.0
FORGOTTEN_SECONDS: Final = 24 * 3600.0
"""Age at which a lease that was never released is removed, if its owner's process cannot be checked."""
FOLDER: Final = "leases"
_CLAIM = re.compile(r"claim-([0-9]{1,9})\.json")


@dataclass(frozen=True)
class Owner:
    """A process that runs trials, and since when (seconds since 1970 of its own clock)."""

    process: Process
    since: float
    launch: str = ""  # the launch that it belongs to

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since)) if self.since else "unknown"
        return f"{self.process} since {since}"


@dataclass
class Lease:
    """One running stack: valid as long as it has a heartbeat."""

    files: Files
    launch: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    since: float = field(default_factory=time.time)
    beats: int = 0
    is_released: bool = False

    @property
    def path(self) -> str:
        """Its file in the Store."""
        return f"{FOLDER}/{self.id}.json"

    def content(self) -> bytes:
        """The content of its file: the process, since when, and how often it has beaten."""
        fields = {
            "process": vars(Process.this()),
            "since": self.since,
            "launch": self.launch,
            "beats": self.beats,
            "time": time.time(),
        }
        return json.dumps(fields).encode()

    def beat(self) -> None:
        """Show that the owner is alive."""
        if not self.is_released:
            self.beats += 1
            self.files.write(self.path, self.content())

    def release(self) -> None:
        """Give up every claim that refers to it; the next ones need no waiting."""
        self.is_released = True
        self.files.remove(self.path)


@dataclass
class Claim:
    """The right to run one trial, until a higher generation exists or its lease has ended."""

    claims: Claims
    trial_id: str
    generation: int
    lease: Lease
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    is_released: bool = False
    fence: Fence = field(init=False)

    def __post_init__(self) -> None:
        self.fence = Fence(f"trials/{self.trial_id}", self.generation, self.is_held)

    @property
    def path(self) -> str:
        """The claim's file in the Store."""
        return f"trials/{self.trial_id}/claim-{self.generation}.json"

    def content(self) -> bytes:
        """The content of its file."""
        fields = {"token": self.token, "lease": self.lease.id, "released": self.is_released, "time": time.time()}
        return json.dumps(fields).encode()

    def is_held(self) -> bool:
        """True until another process has taken over."""
        return self.claims.generation(self.trial_id) == self.generation

    def release(self) -> None:
        """Give up this trial only: the next claim needs no waiting."""
        self.is_released = True
        self.claims.files.write(self.path, self.content())
        self.claims.files.drop_fence(self.fence)


@dataclass
class Claims:
    """The claims of a Store, as one observer sees them."""

    files: Files
    _seen: dict[str, tuple[Any, float]] = field(default_factory=dict, repr=False)

    def lease(self, launch: str = "") -> Lease:
        """A lease of this process; it is in the Store before a claim refers to it."""
        lease = Lease(self.files, launch)
        lease.beat()
        return lease

    def generation(self, trial_id: str) -> int:
        """The highest claim, 0 if there is none."""
        matches = (_CLAIM.fullmatch(name) for name in self.files.names(f"trials/{trial_id}"))
        return max((int(match[1]) for match in matches if match), default=0)

    def owner(self, trial_id: str, generation: int | None = None) -> Owner | None:
        """Who runs the trial now (by the highest claim, or by `generation`); None if nobody does or the lease is stale.

        Stale: its process is known to be dead, or its heartbeat has not changed for 60 s of this observer's clock.
        """
        generation = self.generation(trial_id) if generation is None else generation
        return self.owners({trial_id: generation}).get(trial_id)

    def owners(self, generations: Mapping[str, int]) -> dict[str, Owner]:
        """By trial its owner, if it has one; `generations` are the trials' claims, 0 for none."""
        paths = {f"trials/{i}/claim-{n}.json": i for i, n in generations.items() if n}
        contents = self._contents(paths)
        leases = {path: _lease_of(content or b"") for path, content in contents.items()}
        read = self._contents({path for path in leases.values() if path})
        owner_by_trial = {}
        for path, trial_id in paths.items():
            # A claim without a lease is being written now, or is one of an older version, which has its own heartbeat.
            beating, content = (leases[path], read[leases[path]]) if leases[path] else (path, contents[path])
            owner = None if content is None else self.alive(beating, content)
            if owner is not None:
                owner_by_trial[trial_id] = owner
        return owner_by_trial

    def _contents(self, paths: Iterable[str]) -> dict[str, bytes | None]:
        """The contents of claims and leases; one that cannot be read is empty, which differs from absent."""
        contents = self.files.read_many(paths)
        return {path: b"" if isinstance(content, UnreadableError) else content for path, content in contents.items()}

    def alive(self, path: str, content: bytes) -> Owner | None:
        """The owner of a file with a heartbeat; None if that process is known to be gone."""
        beat, first_seen = self._seen.get(path, (None, 0.0))
        if beat != content:
            first_seen = time.monotonic()
            self._seen[path] = (content, first_seen)
        owner, is_released = _written_by(content)
        is_stale = time.monotonic() - first_seen > STALE_SECONDS
        return None if is_released or owner.process.is_dead() or is_stale else owner

    def claim(self, trial_id: str, lease: Lease, *, supersedes: int = 0) -> Claim | None:
        """Claim the trial; None if another process holds it or was faster.

        `supersedes` is a generation that the caller has seen go stale. A launch hands a trial to one worker at a
        time: if another worker of the launch that `lease` belongs to holds it, the launch has lost that worker.
        """
        generation = self.generation(trial_id)
        if generation != supersedes:
            owner = self.owner(trial_id, generation)
            if owner is not None and (not lease.launch or owner.launch != lease.launch):
                return None
        claim = Claim(self, trial_id, generation + 1, lease)
        self.files.prepare_fence(claim.fence)
        if not self.files.create(claim.path, claim.content()):
            self.files.drop_fence(claim.fence)
            return None
        self.files.raise_fence(claim.fence)
        return claim

    def remove_dead(self) -> None:
        """Remove leases whose owners are known to be gone, and those that everybody has forgotten."""
        paths = [f"{FOLDER}/{name}" for name in self.files.names(FOLDER) if name.endswith(".json")]
        for path, content in self._contents(paths).items():
            lease = checked_beat(content or b"")
            if lease is None:
                continue
            is_forgotten = time.time() - lease.get("time", time.time()) > FORGOTTEN_SECONDS
            if Process(**lease["process"]).is_dead() or is_forgotten:
                self.files.remove(path)


def _written_by(content: bytes) -> tuple[Owner, bool]:
    """The owner of a file with a heartbeat, unknown if it cannot be read, and whether the owner has released it."""
    beat = checked_beat(content)
    if beat is None:
        claim = checked_claim(content)
        return Owner(Process("an unknown host", "", "", 0, 0), 0.0), bool(claim and claim["released"])
    owner = Owner(Process(**beat["process"]), beat.get("since", 0.0), beat.get("launch", ""))
    return owner, beat.get("released", False)


def _lease_of(content: bytes) -> str:
    """The lease that a claim refers to; none if the claim is released."""
    claim = checked_claim(content)
    return "" if claim is None or claim["released"] else f"{FOLDER}/{claim['lease']}.json"
