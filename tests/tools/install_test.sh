#!/usr/bin/env bash
# usage: install_test.sh SOURCE_FOLDER BUILD_FOLDER
# Installs the build into a folder of its own, builds examples/find_package against it, runs both.
set -euo pipefail
source_folder=$1
build_folder=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build_folder" --prefix "$work/prefix" >"$work/install.log"
"$work/prefix/bin/stagecoach" --version
"$work/prefix/bin/stagecoach-prepare" --help >/dev/null

# A copy, so that nothing is found by lying inside the source tree.
cp -r "$source_folder/examples/find_package" "$work/user"
cmake -S "$work/user" -B "$work/user/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/prefix"
cmake --build "$work/user/build" --parallel 2
"$work/user/build/stagecoach_user" | tee "$work/output"
grep -q '^stagecoach [0-9]' "$work/output"

# Installed files must not lead back to the build.
if grep -rlF -e "$build_folder" -e "$source_folder" "$work/prefix/include" \
  "$work/prefix/lib"*/cmake; then
  echo "the installed files above name the source or build folder" >&2
  exit 1
fi
