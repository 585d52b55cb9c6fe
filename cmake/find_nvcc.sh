#!/usr/bin/env bash
# usage: cmake/find_nvcc.sh FOLDER
# Prints the path of an nvcc: the installed one, else one made of NVIDIA's packages on PyPI, which it
# puts into FOLDER. They hold the compiler and the headers that device code needs, nothing more.
set -euo pipefail
[ $# -eq 1 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 1; }

if command -v nvcc; then exit 0; fi
if [ -x /usr/local/cuda/bin/nvcc ]; then
  echo /usr/local/cuda/bin/nvcc
  exit 0
fi
version='==13.0.*'
if [ ! -x "$1/bin/pip" ]; then python3 -m venv "$1" >&2; fi
"$1/bin/pip" install --quiet "nvidia-cuda-nvcc$version" "nvidia-cuda-crt$version" \
  "nvidia-nvvm$version" "nvidia-cuda-runtime$version" >&2
nvcc=$(find "$(cd "$1" && pwd)" -name nvcc -type f | head -n 1)
[ -n "$nvcc" ] || { echo "find_nvcc: the packages hold no nvcc" >&2; exit 1; }
chmod +x "$nvcc"
echo "$nvcc"
