#!/bin/sh
# Two hosts on this machine, each with a network, a name and a /dev/shm of its own, joined by a cable:
#   two_hosts.sh LAUNCHER RANKS PROGRAM [ARG...]   starts RANKS ranks on each with a launcher that takes Hydra's options
# Needs root and iproute2; ends with 77 and says why where there can be no such hosts.
set -u

# The launcher calls this script instead of ssh: [-OPTION...] HOST COMMAND...
if [ -n "${TWO_HOSTS_NAMES:-}" ]; then
    while [ "${1#-}" != "$1" ]; do shift; done
    host=$1
    shift
    exec ip netns exec "$TWO_HOSTS_NAMES$host" unshare --uts --mount sh -c \
        "hostname $host && mount --bind '$TWO_HOSTS_FILE' /etc/hosts && mount -t tmpfs none /dev/shm && $*"
fi

names=frvh$$
file=$(mktemp)
cleanup() {
    ip netns delete ${names}hosta 2>/dev/null
    ip netns delete ${names}hostb 2>/dev/null
    rm -f "$file"
}
trap cleanup EXIT
trap 'exit 143' INT TERM
no() { echo "no hosts can be made here: $1" >&2; exit 77; }

a=${names}hosta b=${names}hostb
why=$({ ip netns add $a && ip netns add $b \
    && ip -n $a link add cable type veth peer name cable netns $b \
    && ip -n $a address add 10.78.0.1/24 dev cable && ip -n $b address add 10.78.0.2/24 dev cable \
    && for name in $a $b; do ip -n $name link set lo up && ip -n $name link set cable up || exit; done \
    && ip netns exec $a unshare --uts --mount true; } 2>&1) || no "$why"
printf '127.0.0.1 localhost\n10.78.0.1 hosta\n10.78.0.2 hostb\n' > "$file"

launcher=$1 ranks=$2
shift 2
export TWO_HOSTS_NAMES=$names TWO_HOSTS_FILE=$file
"$0" hosta "'$launcher'" -launcher ssh -launcher-exec "$0" -hosts "hosta:$ranks,hostb:$ranks" -n $((2 * ranks)) "$@"
