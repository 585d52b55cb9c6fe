#!/usr/bin/env bash
# usage: tests/proof/paced_measurements.sh BUILD
# Runs what is measured on paced devices and held against bounds: idle shares, unequal devices, what
# updates hide, predictions, transfers. BUILD is a build folder with tests. Nothing else may run on
# the host meanwhile: on a busy one these fail, which is why CI leaves them out. About 6 minutes on
# two cores. Exits 1 when a bound is missed.
set -euo pipefail
if [ $# -ne 1 ] || [ ! -f "$1/CTestTestfile.cmake" ]; then
  sed -n '2,6s/^# //p' "$0" >&2
  exit 1
fi
exec ctest --test-dir "$1" -L 'paced$' --output-on-failure --no-tests=error
