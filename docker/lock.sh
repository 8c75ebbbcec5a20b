#!/bin/sh
# Rewrites the lock files from pyproject.toml. Versions stay as they are; `docker/lock.sh --upgrade` takes newer ones.
# Needs uv, and an index or UV_FIND_LINKS that has the CPU build of torch.
set -eu
cd "$(dirname "$0")"

lock() {
    uv pip compile --quiet --generate-hashes --no-header --no-annotate \
        --python-version 3.11 --python-platform x86_64-manylinux_2_28 "$@"
}

echo 'setuptools>=77' | lock "$@" - --output-file requirements-build.txt
lock "$@" ../pyproject.toml cluster.in --output-file requirements-cuda.txt
lock "$@" ../pyproject.toml cluster.in cpu.in --output-file requirements-cpu.txt
