#!/bin/bash
# SPDX-License-Identifier: MIT
# Makes build-arm/root: what the library and its tests need of a Debian for aarch64, downloaded and unpacked there, not
# installed. Beside it this system needs clang, lld and qemu-user-static (tools/test.sh arm).
set -eu
cd "$(dirname "$0")/../.."
root=$PWD/build-arm/root state=$PWD/build-arm/apt
[ -f "$root/done" ] && exit 0
packages="llvm-19-dev libxxhash-dev libzstd-dev zlib1g-dev libcmocka-dev libc6-dev libstdc++-12-dev"

command -v qemu-aarch64-static >/dev/null || {
    as_root=""
    [ "$(id -u)" -eq 0 ] || as_root=sudo
    $as_root apt-get -q -y install --no-install-recommends qemu-user-static >/dev/null
}
rm -rf "$root"
mkdir -p "$root" "$state/lists/partial" "$state/cache/archives/partial"
: >"$state/status"
apt=(apt-get -q -y -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state" -o Dir::State::status="$state/status"
    -o Dir::Cache="$state/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
"${apt[@]}" update >/dev/null || true # lists of others may have nothing for it
"${apt[@]}" --download-only --no-install-recommends install $packages >/dev/null
for package in "$state"/cache/archives/*.deb; do dpkg -x "$package" "$root"; done
# links that begin at the root of the system they were made for
find "$root" -type l -lname '/*' | while IFS= read -r link; do ln -sfn "$root$(readlink "$link")" "$link"; done
rm -rf "$state"
touch "$root/done"
