#!/usr/bin/env bash
# COUNT (default 10000) runs of all schedules that train and all update modes, with delays, under
# the race checker: no race, no other weights. Prints how many it made within SECONDS.
# usage: tests/proof/delayed_runs.sh [BUILD_FOLDER [COUNT [SECONDS [FIRST_SEED]]]]
set -euo pipefail
build=${1:-build/cpu}
export STAGECOACH_DELAYED_RUNS=${2:-10000} STAGECOACH_DELAYED_SECONDS=${3:-3600}
export STAGECOACH_DELAYED_SEED=${4:-1}
exec "$build/tests/test_integration" --gtest_color=no \
  --gtest_filter='SlowUpdateRace.ManyDelayedRuns'
