#!/bin/bash
# SPDX-License-Identifier: MIT
# Makes sure that the packages for a purpose are installed (Debian 12 and 13, Ubuntu 24.04):
#
#     tools/setup.sh [build] [test] [lint]        without a word: build
#
# What is missing is installed by apt, as root or through sudo. Where that may not be done, the packages are named and
# the status is 1. When nothing is missing this takes a few milliseconds and touches nothing.
set -u

packages_build="cmake ninja-build gcc g++ llvm-19-dev libxxhash-dev libzstd-dev zlib1g-dev"
packages_test="libcmocka-dev libonnx-testdata pkgconf clang-19 lld-19 libclang-rt-19-dev"
packages_lint="clang-19 clang-tidy-19 clang-format-19 libcmocka-dev"

wanted=""
for purpose in "${@:-build}"; do
    case $purpose in
    build) wanted+=" $packages_build" ;;
    test) wanted+=" $packages_build $packages_test" ;;
    lint) wanted+=" $packages_build $packages_lint" ;;
    *) echo "usage: tools/setup.sh [build] [test] [lint]" >&2; exit 2 ;;
    esac
done
wanted=$(printf '%s\n' $wanted | sort -u)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "tools/setup.sh: not a Debian system, nothing was checked. Needed is what these packages have:" $wanted >&2
    exit 0
fi

missing() {
    local have
    have=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $wanted 2>/dev/null | awk '$2 == "installed" { print $1 }')
    comm -23 <(echo "$wanted") <(echo "$have" | sort -u)
}

absent=$(missing)
[ -z "$absent" ] && exit 0

refuse() {
    {
        echo "These packages are missing, and $1:"
        printf '    %s\n' $absent
        echo "To install them:"
        echo "    apt-get install --no-install-recommends" $absent
    } >&2
    exit 1
}

as_root=""
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || refuse "they cannot be installed from here (not root, and there is no sudo)"
    as_root="sudo"
    if ! sudo -n true 2>/dev/null; then
        [ -t 0 ] || refuse "they cannot be installed from here (not root, and sudo wants a password)"
    fi
fi

echo "Installing:" $absent
apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0"
$apt update >/dev/null || echo "tools/setup.sh: apt-get update failed; going on with the package lists that are here" >&2
$apt install --no-install-recommends $absent </dev/null || { absent=$(missing); refuse "apt-get could not install them"; }
absent=$(missing)
[ -z "$absent" ] || refuse "apt-get did not install them"
