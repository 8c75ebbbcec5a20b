"""The image's files, and commands to their end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.version import Version

from tests.support.project import ROOT

DOCKER = ROOT / "docker"
BIN = Path(sys.executable).parent
USER = 10001
TOOLS = ("mmdebstrap", "buildah", "podman", "runc", "openssl")


def locked(path: Path) -> dict[str, tuple[Version, list[str]]]:
    """Version and hashes by name; fails on a line that is anything else."""
    found = {}
    for entry in path.read_text().replace("\\\n", " ").splitlines():
        name_version, *hashes = entry.split()
        name, version = name_version.split("==")
        assert name not in found
        found[name] = (Version(version), [hash_.removeprefix("--hash=sha256:") for hash_ in hashes])
    return found


def call(*command: str | Path, timeout: float = 900, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run to the end; where `check`, a failure shows what was printed."""
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    assert not check or done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done


def need_tools() -> None:
    """Fail, saying what to install, where images cannot be built and run."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    assert not missing, f"this test needs {', '.join(missing)}: apt-get install {' '.join(missing)}"
    assert os.geteuid() == 0, "this test builds and runs images, which needs root here"


@contextlib.contextmanager
def image_storage(folder: Path) -> Iterator[list[str]]:
    """The options of buildah and podman for images of their own; whatever they left is removed."""
    options = ["--root", f"{folder}/root", "--runroot", f"{folder}/runroot", "--storage-driver", "overlay"]
    try:
        yield options
    finally:
        call("buildah", *options, "rm", "--all", check=False)
        call("buildah", *options, "rmi", "--all", "--force", check=False)
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for path in reversed([path for path in mounted if path.startswith(f"{folder}/")]):
            call("umount", path, check=False)
        shutil.rmtree(folder / "root", ignore_errors=True)


def fetch_wheels(folder: Path, target: str) -> None:
    """What the locks name, for the image's platform, from wherever this environment's pip gets packages."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)]
    for lock in ("build", target):
        call(
            BIN / "python", "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:",
            "--python-version=3.11", "--platform=manylinux2014_x86_64", *platforms,
            "--requirement", DOCKER / f"requirements-{lock}.txt", "--dest", folder,
        )  # fmt: skip


def build_base(storage: list[str], folder: Path) -> str:
    """A bare Debian with Python, made from packages."""
    excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man")]
    call("mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,python3-venv,ca-certificates", *excluded,
         "bookworm", folder / "base.tar")  # fmt: skip
    container = call("buildah", *storage, "from", "scratch").stdout.strip()
    call("buildah", *storage, "add", "--quiet", container, folder / "base.tar")
    call("buildah", *storage, "commit", "--quiet", "--rm", container, "localhost/base:bookworm")
    (folder / "base.tar").unlink()
    return "localhost/base:bookworm"


def build(
    storage: list[str], base: str, target: str, secrets: Mapping[str, Path], *options: str
) -> subprocess.CompletedProcess[str]:
    """Build the working tree's image as docker/README.md does; its name is `image_name(target)`."""
    commit = call("git", "rev-parse", "HEAD").stdout.strip()
    dirty = "true" if call("git", "status", "--porcelain").stdout else "false"
    return call(
        "buildah", *storage, "bud", "--isolation=chroot", "--network=host", "--format=docker", "--layers",
        f"--timestamp={call('git', 'log', '-1', '--format=%ct').stdout.strip()}", f"--target={target}",
        *(f"--secret=id={name},src={path}" for name, path in secrets.items()), f"--build-arg=BASE_IMAGE={base}",
        f"--build-arg=COMMIT={commit}", f"--build-arg=DIRTY={dirty}", f"--tag={image_name(target)}", *options,
        f"--file={DOCKER / 'Dockerfile'}", ROOT,
        timeout=3000,
    )  # fmt: skip


def image_name(target: str) -> str:
    return f"localhost/polysweep:{target}"


@contextlib.contextmanager
def built_image(folder: Path, target: str = "cpu") -> Iterator[tuple[list[str], str]]:
    """The options of buildah and podman, and the name of an image that was built from the working tree."""
    need_tools()
    wheels = folder / "wheels"
    fetch_wheels(wheels, target)
    (folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    with image_storage(folder) as storage:
        build(storage, build_base(storage, folder), target, {"pip_conf": folder / "pip.conf"},
              f"--volume={wheels}:/wheels:ro")  # fmt: skip
        shutil.rmtree(wheels)
        yield storage, image_name(target)


def run_in(storage: list[str], image: str, *command: str, mounts: tuple[str, ...] = ()) -> str:
    """What `try_in` printed; a failure fails the test."""
    done = try_in(storage, image, *command, mounts=mounts)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def try_in(
    storage: list[str], image: str, *command: str, mounts: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run as compose would: no capabilities, a read-only root."""
    return call(
        "podman", *storage, "run", "--rm", "--no-healthcheck", "--runtime=runc", "--ulimit=nofile=1024:1024",
        "--ulimit=nproc=1024:1024", "--network=none", "--read-only", "--read-only-tmpfs=false",
        "--tmpfs=/tmp:mode=1777,size=1g", "--shm-size=512m", "--cap-drop=ALL", "--security-opt=no-new-privileges",
        *(f"--volume={mount}" for mount in mounts), image, *command, timeout=900, check=False,
    )  # fmt: skip


def layers(storage: list[str], image: str) -> list[Path]:
    """The folders of the image's layers, the last one first."""
    driver = json.loads(call("podman", *storage, "inspect", image).stdout)[0]["GraphDriver"]["Data"]
    return [Path(folder) for key in ("UpperDir", "LowerDir") for folder in driver.get(key, "").split(":") if folder]


UNWANTED = {
    "a compiler": r"(.*/)?bin/([\w]+-)*(gcc|g\+\+|cc|c\+\+|clang|tcc|ld|as|make|cmake|rustc|cargo|go|nvcc)(-[\d.]+)?",
    "a cache": r"var/lib/apt/lists/.+_.+|var/cache/apt/.*\.(deb|bin)|tmp/.+|dist/.+|(.*/)?\.cache/.+",
    "a credential": r"run/secrets/.+|(.*/)?([._]netrc|\.pypirc|\.npmrc|\.git-credentials|pip\.conf|id_(rsa|ed25519)|"
    r"\.aws/.+|\.docker/config\.json|ray-token|auth_token)",
}
"""What no layer may have, by patterns of paths."""


def unwanted(layer: Path) -> list[str]:
    """The files of a layer that should not be in it: by their names, or because they are a private key."""
    files = {
        str(path.relative_to(layer)): path for path in layer.rglob("*") if path.is_file() and not path.is_symlink()
    }
    by_name = [f"{what}: {name}" for what, path in UNWANTED.items() for name in files if re.fullmatch(path, name)]
    return by_name + [f"a private key: {name}" for name, path in files.items() if _is_private_key(path)]


def _is_private_key(path: Path) -> bool:
    with path.open("rb") as file:
        return b"PRIVATE KEY-----" in file.read(40)
