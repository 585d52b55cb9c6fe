#!/usr/bin/env bash
# usage: cmake/install_packages.sh LIST…
# Installs the Debian packages named in the LIST files, one a line, that are not installed yet.
# Never removes a package: one that stands in the way is reported instead.
set -euo pipefail

installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

if ! command -v dpkg-query >/dev/null; then
  echo "install_packages: no dpkg here; the build will say what it misses (see $*)" >&2
  exit 0
fi

missing=()
# shellcheck disable=SC2013 # one word a line is the format
for package in $(sed 's/#.*//' "$@"); do
  installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

install=(apt-get install -y --no-remove --no-install-recommends "${missing[@]}")
if [ "$(id -u)" -ne 0 ]; then
  echo "These packages are missing; run as root:" >&2
  echo "  ${install[*]}" >&2
  exit 1
fi

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Installing ${missing[*]}" >&2
# Lists may be absent or older than the mirror: fetch them once, and only when that is the problem.
attempt() {
  "${install[@]}" >"$log" 2>&1
}
stale() {
  grep -qE 'Unable to locate|no installation candidate|Unable to fetch|404 ' "$log"
}
if attempt || { stale && apt-get update >&2 && attempt; }; then
  exit 0
fi
cat "$log" >&2
if grep -qE 'need to be removed|remove is disabled|unmet dependencies|Conflicts:' "$log"; then
  echo "A package above conflicts with installed ones; nothing was removed. Remove it, then rerun." >&2
else
  echo "apt-get failed: ${install[*]}" >&2
fi
exit 1
