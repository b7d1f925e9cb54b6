#!/bin/sh
# Installs the packages of examples/ into .venv/, as their users would, but in place. What is
# installed already costs little time.
set -eu
cd "$(dirname "$0")/.."

for package in examples/*/; do
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
        --no-build-isolation --editable "$package"
done
