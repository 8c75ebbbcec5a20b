#!/bin/sh
# Install what a lock file names, nothing else, into /opt/venv. The index and the CA come from build secrets, if given.
set -eu
[ ! -f /run/secrets/ca ] || export PIP_CERT=/run/secrets/ca
export PIP_CONFIG_FILE=/run/secrets/pip_conf
python -m pip install --no-deps --require-hashes --only-binary :all: --no-compile -r "$1"
# The root is read-only later: without this every process would compile every module that it imports. By hash and not
# by time, so that two builds give the same files. A few files are for a later Python and do not compile: no error.
python -m compileall -qq --invalidation-mode checked-hash /opt/venv/lib || true
