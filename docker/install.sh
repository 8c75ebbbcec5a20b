#!/bin/sh
# Install what a lock file names, nothing else, into /opt/venv. The index and the CA come from build secrets, if given.
set -eu
[ ! -f /run/secrets/ca ] || export PIP_CERT=/run/secrets/ca
export PIP_CONFIG_FILE=/run/secrets/pip_conf
python -m pip install --no-deps --require-hashes --only-binary :all: --no-compile -r "$1"
