#!/bin/sh
# The last step of a target: install the wheel, check torch, say what the image is, and keep its lock beside that.
set -eu
python -m pip install --no-deps --no-index --no-compile /dist/*.whl
python -m compileall -q --invalidation-mode checked-hash /opt/venv/lib/python3*/site-packages/polysweep
install -d /opt/polysweep
install -m 644 "/docker/requirements-$1.txt" /opt/polysweep/requirements.txt
install -m 755 /docker/healthy.py /opt/polysweep/healthy
python /docker/image_info.py "$1" "/docker/requirements-$1.txt" /opt/polysweep/image.json
