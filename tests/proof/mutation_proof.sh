#!/usr/bin/env bash
# Leaves out one ordering of docs/consistency.md at a time, in every cell of its table, COUNT runs
# each (default 200): where it is independent every run must notice, elsewhere none.
# usage: tests/proof/mutation_proof.sh [BUILD_FOLDER [COUNT [GTEST_FILTER]]]
set -euo pipefail
build=${1:-build/cpu}
STAGECOACH_PROOF_RUNS=${2:-200} exec "$build/tests/test_integration" \
  --gtest_filter="${3:-*SlowMutationProof*}" --gtest_color=no
