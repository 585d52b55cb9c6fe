#!/usr/bin/env bash
# usage: tests/hardware/compile_all_targets.sh BUILD
# Compiles the GPU kernels for every target of the default lists (the tests' build takes two) into
# BUILD and prints what each vendor's image holds. Minutes on many cores, half an hour on two.
set -euo pipefail
[ $# -eq 1 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 1; }
root=$(cd "$(dirname "$0")/../.." && pwd)
cmake -S "$root" -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSTAGECOACH_TESTS=OFF \
  -DSTAGECOACH_EXAMPLES=OFF -DSTAGECOACH_CUDA=ON -DSTAGECOACH_HIP=ON >/dev/null
for image in kernels.fatbin kernels.hsaco; do
  start=$SECONDS
  cmake --build "$1" --target "generated/$image" >"$1/$image.log" 2>&1 || {
    cat "$1/$image.log" >&2
    exit 1
  }
  echo "$image: $(stat -c %s "$1/generated/$image") bytes in $((SECONDS - start)) s"
done
grep -h -o '"sm_[^}]*\|"gfx[^}]*' "$1"/generated/*_kernel_image.cpp
