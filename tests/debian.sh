#!/usr/bin/env bash
# Sees to it that Debian packages are there: tests/debian.sh chromium chromium-driver.
# Where they are missing and cannot be installed it says so and fails.
set -uo pipefail
missing=()
for package in "$@"; do
  dpkg --status "$package" 2>/dev/null | grep -q '^Status: .* installed$' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  exec 9<"$0" && flock 9 # apt serves one at a time
  apt-get update -qq >/dev/null 2>&1
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" \
    >/dev/null && exit 0
fi
echo "skipped: this needs the Debian packages ${missing[*]}, and the right to install them" >&2
exit 1
