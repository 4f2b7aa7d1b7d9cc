#!/bin/bash
# SPDX-License-Identifier: MIT
# The README's two commands on machines that have nothing: builds a tree of each system with debootstrap, with git and make
# and nothing else, clones this revision into it, and runs `make run` and `make test` there.
#
#     tools/bare.sh FOLDER [SYSTEM...]        systems: debian12 debian13 ubuntu24.04 (default: all three)
#
# FOLDER (outside of the repository) holds for each system the tree, a copy of it as it was when it was bare (which later
# runs start from), and the log. What is committed is tested, not what lies in the work tree. Status 1 when anything failed;
# the table at the end is what docs/testing.md has. Needs root, debootstrap (installed by apt when it is missing), some
# 8 GB a tree, and a network. Variables:
#
#     TARGETS          what is made, in this order (default: "run test")
#     AGAIN=1          goes on in the trees as they were left: no packages to install, and what was built is kept
#     JOBS             how many at once
#     DEBIAN_MIRROR, UBUNTU_MIRROR    where packages come from (default: debootstrap's own)
#     CHECK_GPG=no     goes on when the keyring of a system is not installed (ubuntu-archive-keyring, which Debian 12 lacks)
set -u
[ $# -ge 1 ] || { sed -n '3,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 2; }
mkdir -p "$1" && folder=$(realpath "$1") || exit 2
shift
cd "$(dirname "$0")/.." || exit 2
case $folder/ in "$PWD"/*) echo "tools/bare.sh: $folder is inside of the repository" >&2; exit 2 ;; esac
[ "$(id -u)" -eq 0 ] || { echo "tools/bare.sh: needs root" >&2; exit 2; }
targets=${TARGETS:-run test}
failed=0
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT

command -v debootstrap >/dev/null || { apt-get -q update && apt-get -q -y install --no-install-recommends debootstrap; } || exit 2

# SYSTEM: makes $folder/SYSTEM.tar, the bare tree
build_tree() {
    local system=$1 suite mirror keyring options=() script=() tree=$folder/$1
    case $system in
    debian12) suite=bookworm mirror=${DEBIAN_MIRROR:-} keyring=debian-archive-keyring.gpg ;;
    debian13) suite=trixie mirror=${DEBIAN_MIRROR:-} keyring=debian-archive-keyring.gpg ;;
    ubuntu24.04)
        suite=noble mirror=${UBUNTU_MIRROR:-} keyring=ubuntu-archive-keyring.gpg
        options+=(--components=main,universe)
        # Every Ubuntu is made by one script; an older debootstrap knows it by an older name.
        [ -e /usr/share/debootstrap/scripts/$suite ] || script=(/usr/share/debootstrap/scripts/gutsy)
        ;;
    esac
    if [ -e "/usr/share/keyrings/$keyring" ]; then options+=("--keyring=/usr/share/keyrings/$keyring")
    elif [ "${CHECK_GPG:-yes}" = no ]; then options+=(--no-check-gpg)
    else echo "tools/bare.sh: no $keyring; CHECK_GPG=no goes on without" >&2; return 1; fi
    # With a script but no mirror debootstrap would take the script for the mirror.
    [ ${#script[@]} -eq 0 ] || mirror=${mirror:-$(sed -n 's/.*default_mirror *\(http[^ ]*\).*/\1/p' "${script[0]}" | grep '//archive\.' | head -n 1)}
    rm -rf "$tree"
    debootstrap --variant=minbase --include=git,make,ca-certificates "${options[@]}" $suite "$tree" $mirror "${script[@]}" &&
        # as every installed system has it: Ubuntu 24.04 got LLVM 19 as an update
        sed -i "s/^\(deb [^ ]* $suite\)\( .*\)/&\n\1-updates\2/" "$tree/etc/apt/sources.list" &&
        tar -C "$tree" -cf "$tree.tar.part" . && mv "$tree.tar.part" "$tree.tar"
}

# TREE, a command: in the tree, with what a machine has mounted; all of it is gone when the command ends
inside() {
    local tree=$1
    shift
    cp -L /etc/resolv.conf "$tree/etc/resolv.conf"
    unshare --mount --pid --fork --kill-child bash -c '
        tree=$1
        shift
        mount -t proc proc "$tree/proc" && mount -t sysfs -o ro sysfs "$tree/sys" && mount -t tmpfs tmpfs "$tree/dev/shm" &&
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$tree/dev/pts" && ln -sfn pts/ptmx "$tree/dev/ptmx" &&
        exec chroot "$tree" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 '"${JOBS:+JOBS=$JOBS CMAKE_BUILD_PARALLEL_LEVEL=$JOBS}"' "$@"' \
        - "$tree" "$@"
}

installed() { inside "$1" dpkg-query -W -f '${Package}\n' | wc -l; }

# SYSTEM
try() {
    local system=$1 tree=$folder/$1 log=$folder/$1.log cells="" before after target start
    : >"$log"
    if [ -z "${AGAIN:-}" ] || [ ! -d "$tree/root/ashlar" ]; then
        echo "$system: a bare tree"
        [ -e "$tree.tar" ] || build_tree "$system" >>"$log" 2>&1 || { echo "| $system | no tree |" >>"$rows"; return 1; }
        rm -rf "$tree" && mkdir "$tree" && tar -C "$tree" -xf "$tree.tar" || return 1
    fi
    git bundle create -q "$tree/root/ashlar.bundle" HEAD &&
        inside "$tree" sh -c 'cd && if [ -d ashlar ]; then cd ashlar && git fetch -q ../ashlar.bundle HEAD && git reset -q --hard FETCH_HEAD
                              else git clone -q ashlar.bundle ashlar; fi' >>"$log" 2>&1 || { echo "| $system | no clone |" >>"$rows"; return 1; }
    before=$(installed "$tree")
    for target in $targets; do
        echo "$system: make $target (the log is $log)"
        start=$SECONDS
        printf '\n##### make %s\n' "$target" >>"$log"
        if inside "$tree" make -C /root/ashlar "$target" >>"$log" 2>&1; then cells+=" passed, "; else cells+=" **failed**, "; failed=1; fi
        cells+="$(((SECONDS - start + 30) / 60)) min"
        case $target in test*) cells+="; $(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' "$log" | tail -n 1)" ;; esac
        cells+=" |"
    done
    after=$(installed "$tree")
    echo "| $system | $(. "$tree/etc/os-release"; echo "$PRETTY_NAME") | $before + $((after - before)) |$cells" >>"$rows"
}

{ # read whole before it runs, so that the script may be edited meanwhile
known="debian12 debian13 ubuntu24.04"
for system in "${@:-$known}"; do
    for one in $system; do # the default is one word
        case " $known " in *" $one "*) try "$one" || failed=1 ;; *) echo "tools/bare.sh: no system $one; there are $known" >&2; exit 2 ;; esac
    done
done

echo
printf '| tree | system | packages, bare + installed |'
printf ' `make %s` |' $targets
printf '\n|---|---|---|'
printf -- '---|%.0s' $targets
echo
cat "$rows"
exit $failed
}
