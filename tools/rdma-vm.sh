#!/bin/bash
# rdma-vm.sh - run a command in a small VM whose Linux kernel has a software
# RDMA driver (rdma_rxe; optionally siw), on a machine whose own kernel has none.
#
#   rdma-vm.sh [options] -- COMMAND [ARG...]
#
# The guest is Debian's own kernel package under qemu (TCG: no KVM needed).  Its
# root file system is THIS machine's "/", read-only over 9p with a tmpfs overlay
# on top, so everything built or installed here runs there unchanged.
# Prints the command's stdout/stderr and exits with its exit status
# (124: timed out; 125: the VM failed before the command ended).
#
#   --mount DIR[:GUESTDIR]  mount DIR read-write in the guest (default: same path);
#                           repeatable.  All else the guest writes is lost.
#   --dev LIST    software RDMA devices to make: rxe, siw, rxe,siw or none [rxe]
#                 (names in the guest: rxe0, siw0; net device rnet0)
#   --vms N       1 or 2 [1].  2: two VMs on one virtual Ethernet, the same
#                 command in both; lines are prefixed [0] / [1]; the exit status
#                 is that of the first that failed
#   --cwd DIR     directory to run in [the current one, if under a --mount, else /]
#   --env K=V     set a variable for the command; repeatable
#   --mem MiB     guest memory [2048]        --cpus N   virtual CPUs [2]
#   --mtu N       MTU of rnet0 [4200; rxe then offers a path MTU of 4096]
#   --timeout S   limit for the command, in seconds [240]
#   --cache DIR   where downloads, kernel and initramfs are kept
#                 [${RDMA_VM_CACHE:-~/.cache/ferrovia-rdma-vm}]
#   --log DIR     keep the guest's console and dmesg there
#   --setup       only prepare (download, unpack, build the initramfs)
#   --header      only fetch the headers of libibverbs and librdmacm, and print the
#                 directory they are in
#
# The command sees: RDMA_VM_RANK (0..N-1), RDMA_VM_SIZE, RDMA_VM_IP (10.77.0.R+1),
# RDMA_VM_PEER (the other VM's address; its own with --vms 1), RDMA_VM_DEV.
#
# Only Debian packages, through apt.  qemu, the kernel and the headers are unpacked
# into the cache, not installed (apt would remove a backports qemu-utils for the
# first, and run the initramfs hooks for the second).
set -euo pipefail
self=$(realpath "$0")

die() { echo "rdma-vm: $*" >&2; exit 125; }
usage() { sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p}' "$0"; }

mounts=() envs=() dev=rxe vms=1 mem=2048 cpus=2 mtu=4200 limit=240 cwd= logdir= setup= header=
cache=${RDMA_VM_CACHE:-${HOME:-/root}/.cache/ferrovia-rdma-vm}
while [ $# -gt 0 ]; do
  case $1 in
    --mount) mounts+=("$2"); shift 2 ;;
    --env) envs+=("$2"); shift 2 ;;
    --dev) dev=$2; shift 2 ;;
    --vms) vms=$2; shift 2 ;;
    --mem) mem=$2; shift 2 ;;
    --cpus) cpus=$2; shift 2 ;;
    --mtu) mtu=$2; shift 2 ;;
    --timeout) limit=$2; shift 2 ;;
    --cwd) cwd=$2; shift 2 ;;
    --cache) cache=$2; shift 2 ;;
    --log) logdir=$2; shift 2 ;;
    --setup) setup=1; shift ;;
    --header) header=1; shift ;;
    -h|--help) usage; exit 0 ;;
    --) shift; break ;;
    *) die "unknown option $1 (see --help)" ;;
  esac
done
[ -n "$setup$header" ] || [ $# -gt 0 ] || { usage >&2; exit 125; }
case $vms in 1|2) ;; *) die "--vms: 1 or 2" ;; esac
export PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$cache"; cache=$(realpath "$cache")

# ---------------------------------------------------------------- preparation
aptq() { apt-get -qq -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 "$@"; }
updated=
apt_update() { [ -n "$updated" ] || { aptq update >&2; updated=1; }; }

# Packages the guest (and the builds) use straight from this machine's "/".
host_packages() {
  local want=(busybox-static cpio kmod iproute2 xz-utils rdma-core libibverbs1
              ibverbs-providers ibverbs-utils librdmacm1 rdmacm-utils perftest)
  local need=() p
  for p in "${want[@]}"; do
    [ "$(dpkg-query -W -f='${Status}' "$p" 2>/dev/null)" = 'install ok installed' ] || need+=("$p")
  done
  [ ${#need[@]} = 0 ] && return
  echo "rdma-vm: installing ${need[*]}" >&2
  apt_update
  DEBIAN_FRONTEND=noninteractive aptq install -y --no-remove --no-install-recommends "${need[@]}" >&2
}

# fetch_into DIR PKG[=VER]...: download and unpack, installing nothing.
fetch_into() {
  local dir=$1 tmp; shift
  tmp=$(mktemp -d "$cache/dl.XXXXXX")
  (cd "$tmp" && aptq download "$@" >&2)
  mkdir -p "$dir"
  local d; for d in "$tmp"/*.deb; do dpkg-deb -x "$d" "$dir"; done
  rm -rf "$tmp"
}

qemu() {
  local q=$cache/qemu
  LD_LIBRARY_PATH=$q/usr/lib/x86_64-linux-gnu:$q/lib/x86_64-linux-gnu "$@"
}

get_qemu() { # (again, if libraries this machine had then are gone)
  [ -e "$cache/qemu/.done" ] && qemu "$cache/qemu/usr/bin/qemu-system-x86_64" --version >/dev/null 2>&1 && return
  echo "rdma-vm: fetching qemu" >&2
  apt_update; rm -rf "$cache/qemu"
  # what apt would install here for qemu-system-x86: the package and those of its
  # libraries that this machine lacks
  mapfile -t list < <(apt-get -s install --no-install-recommends qemu-system-x86 2>/dev/null |
                      awk '/^Inst /{for(i=3;i<=NF;i++)if($i~/^\(/){print $2"="substr($i,2);break}}')
  [ ${#list[@]} -gt 0 ] || list=(qemu-system-x86 qemu-system-data qemu-system-common seabios)
  fetch_into "$cache/qemu" "${list[@]}"
  touch "$cache/qemu/.done"
}

get_kernel() {
  [ -e "$cache/kernel/.done" ] && return
  apt_update; rm -rf "$cache/kernel"
  local pkg
  pkg=$(apt-cache depends linux-image-amd64 | awk '/Depends:/{print $2; exit}')
  [ -n "$pkg" ] || die "apt offers no linux-image-amd64"
  echo "rdma-vm: fetching $pkg" >&2
  fetch_into "$cache/kernel" "$pkg"
  apt-cache show --no-all-versions "$pkg" | awk '/^Version:/{print $2}' >"$cache/kernel/debversion"
  local k=$cache/kernel v=${pkg#linux-image-} z
  z=$k/boot/vmlinuz-$v
  # Take the ELF image out of the bzImage: qemu enters it by PVH at once, which
  # saves unpacking the xz payload under emulation (5 s).
  local ss off len
  ss=$(od -An -tu1 -j497 -N1 "$z"); off=$(od -An -tu4 -j584 -N4 "$z"); len=$(od -An -tu4 -j588 -N4 "$z")
  off=$(( (ss + 1) * 512 + off ))
  tail -c +$((off + 1)) "$z" | head -c "$((len))" | xz -dc --single-stream >"$k/vmlinux" 2>/dev/null || true
  [ "$(head -c4 "$k/vmlinux" | tail -c3)" = ELF ] || cp "$z" "$k/vmlinux"
  depmod -b "$k" "$v"
  echo "$v" >"$k/version"
  touch "$k/.done"
}

# The headers of the libraries that this machine has, where apt offers that version.
get_headers() {
  local p version
  [ -e "$cache/header/usr/include/rdma/rdma_cma.h" ] && return # unpacked last
  echo "rdma-vm: fetching libibverbs-dev and librdmacm-dev" >&2
  apt_update; rm -rf "$cache/header"
  version=$(dpkg-query -W -f='${Version}' libibverbs1 2>/dev/null) || :
  for p in libibverbs-dev librdmacm-dev; do
    apt-cache show "$p=$version" >/dev/null 2>&1 && p=$p=$version
    fetch_into "$cache/header" "$p"
  done
}

# Debian does not enable siw: build it from the distribution's kernel source, with
# the kernel's headers unpacked beside it (their two absolute paths rewritten).
get_siw() {
  local k=$cache/kernel v b ver h; v=$(cat "$k/version"); b=$cache/siw
  local ko=$k/lib/modules/$v/extra/siw.ko
  [ -e "$ko" ] && return
  echo "rdma-vm: building siw.ko from linux-source" >&2
  command -v gcc >/dev/null && command -v make >/dev/null || die "--dev siw needs gcc and make"
  apt_update
  ver=$(cat "$k/debversion")
  rm -rf "$b"; mkdir -p "$b/siw"
  local common=linux-headers-${v%-*}-common kbuild=linux-kbuild-${v%%.0-*} src=linux-source-${v%%.0-*}
  fetch_into "$b" "linux-headers-$v=$ver" "$common=$ver" "$kbuild=$ver" "$src=$ver"
  h=$b/usr/src/linux-headers-$v
  grep -rlI -- "/usr/src/linux-headers-" "$h/Makefile" "$h/.kernelvariables" 2>/dev/null |
    xargs -r sed -i "s,/usr/src/linux-headers-,$b/usr/src/linux-headers-,g"
  tar -C "$b/siw" --strip-components=5 -xf "$b"/usr/src/linux-source-*.tar.xz \
      --wildcards 'linux-source-*/drivers/infiniband/sw/siw/*'
  make -C "$h" M="$b/siw" CONFIG_RDMA_SIW=m modules >"$b/log" 2>&1 ||
    { tail -n 40 "$b/log" >&2; die "siw did not build"; }
  mkdir -p "${ko%/*}"; objcopy --strip-debug "$b/siw/siw.ko" "$ko"
  depmod -b "$k" "$v"
  rm -rf "$b"
}

# The initramfs holds busybox and every module the set-up needs, and does the
# set-up itself: each program started from "/" over 9p costs much more.
make_initramfs() {
  local k=$cache/kernel v i; v=$(cat "$k/version"); i=$cache/initramfs
  local ko=$k/lib/modules/$v/extra/siw.ko
  [ "$cache/initrd" -nt "$k/.done" ] && [ "$cache/initrd" -nt "$self" ] &&
    { [ ! -e "$ko" ] || [ "$cache/initrd" -nt "$ko" ]; } && return
  rm -rf "$i"; mkdir -p "$i"/{bin,m,proc,sys,dev,low,up,root}
  cp "$(command -v busybox)" "$i/bin/busybox"
  local have=
  collect() { # NAME MODULE...: write the insmod order of MODULEs to m/NAME
    local name=$1 m f; shift
    for m; do
      while read -r _ f _; do
        f=$(realpath "$f")
        case " $have " in *" ${f##*/} "*) continue ;; esac
        cp "$f" "$i/m/"; have="$have ${f##*/}"; echo "${f##*/}" >>"$i/m/$name"
      done < <(modprobe -d "$k" -S "$v" --show-depends "$m" 2>/dev/null | grep ^insmod)
    done
  }
  collect base virtio_pci virtio_rng 9pnet_virtio 9p overlay virtio_console
  collect net dummy virtio_net
  collect rdma ib_uverbs ib_umad rdma_ucm
  collect rxe crc32_generic rdma_rxe # (not crc32_pclmul: slower under emulation)
  [ ! -e "$ko" ] || collect siw libcrc32c crc32c_generic siw
  cat >"$i/init" <<'EOF'
#!/bin/busybox sh
b=/bin/busybox
load() { while read m; do $b insmod /m/$m || echo "insmod $m failed" >&2; done </m/$1; }
end() { echo "init: $*"; $b poweroff -f; }
$b mount -t proc proc /proc; $b mount -t sysfs sysfs /sys; $b mount -t devtmpfs dev /dev
load base
o=trans=virtio,version=9p2000.L,msize=262144
$b mount -t 9p -o $o,ro,cache=loose hostroot /low || end "no root file system"
$b mount -t tmpfs up /up; $b mkdir /up/u /up/w
$b mount -t overlay -o lowerdir=/low,upperdir=/up/u,workdir=/up/w overlay /root || end "no overlay"
cd /root; $b mkdir -p usr/lib/modules proc sys dev run tmp
$b mount -t 9p -o $o,ro,cache=loose modules usr/lib/modules
$b mount -t tmpfs run run; $b mount -t tmpfs tmp tmp; $b chmod 1777 tmp
$b mkdir run/rdma-vm run/lock; $b mount -t 9p -o $o,cache=none ctl run/rdma-vm || end "no control directory"
c=/root/run/rdma-vm; . $c/vars
for p in /sys/class/virtio-ports/*; do # our two output channels
  read n <$p/name; $b ln -s /dev/${p##*/} /root/run/rdma-vm.$n
done
exec 2>$c/setup.err
$b mkdir -p /dev/pts /dev/shm; $b mount -t devpts devpts /dev/pts; $b mount -t tmpfs shm /dev/shm
$b ln -s /proc/self/fd /dev/fd; $b ln -s fd/0 /dev/stdin; $b ln -s fd/1 /dev/stdout; $b ln -s fd/2 /dev/stderr
$b hostname rdma-vm-$rank
$b ip link set lo up
load net
if [ $size = 2 ]; then n=eth0; else n=dummy0; fi; $b ip link set $n name rnet0
$b ip link set rnet0 mtu $mtu; $b ip link set rnet0 up
$b ip addr add 10.77.0.$((rank + 1))/24 dev rnet0
case ,$dev, in ,none,) ;; *) load rdma ;; esac
case ,$dev, in *,rxe,*) load rxe ;; esac
case ,$dev, in *,siw,*) load siw ;; esac
cd /; for d in proc sys dev; do $b mount --move /$d /root/$d; done
exec $b switch_root /root /bin/bash /run/rdma-vm/guest.sh
EOF
  chmod +x "$i/init"
  (cd "$i" && find . | cpio -o -H newc --quiet | gzip -1) >"$cache/initrd.$$"
  mv "$cache/initrd.$$" "$cache/initrd"; rm -rf "$i"
}

exec 9>"$cache/.lock"; flock 9
if [ -n "$header" ]; then
  get_headers
  echo "$cache/header/usr/include"
  exit 0
fi
host_packages
get_qemu
get_kernel
case ,$dev, in *,siw,*) get_siw ;; esac
make_initramfs
flock -u 9; exec 9>&-
[ -z "$setup" ] || exit 0

# -------------------------------------------------------------------- the run
work=$(mktemp -d "${TMPDIR:-/tmp}/rdma-vm.XXXXXX")
pids=()
cleanup() {
  local p; for p in "${pids[@]}"; do kill "$p" 2>/dev/null || :; done
  if [ -n "$logdir" ]; then
    mkdir -p "$logdir"
    for r in 0 1; do
      [ -d "$work/$r" ] && cp -f "$work/$r/console" "$logdir/console.$r" 2>/dev/null
      [ -d "$work/$r" ] && cp -f "$work/$r/ctl/dmesg" "$logdir/dmesg.$r" 2>/dev/null
    done || :
  fi
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fsargs=() mountlines=() n=0 here=$(pwd -P) incwd=
for m in ${mounts[@]+"${mounts[@]}"}; do
  src=$(realpath -e "${m%%:*}") || die "no such directory: ${m%%:*}"
  case $m in *:*) dst=${m#*:} ;; *) dst=$src ;; esac
  fsargs+=(-virtfs "local,path=$src,mount_tag=m$n,security_model=passthrough,multidevs=remap")
  at=$(printf %q "$dst")
  mountlines+=("mkdir -p $at && mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=mmap m$n $at")
  case $here/ in "$src"/*) [ -n "$incwd" ] || incwd=$dst${here#"$src"} ;; esac
  n=$((n + 1))
done
[ -n "$cwd" ] || cwd=${incwd:-/}

start_vm() { # RANK
  local r=$1 w=$work/$1 k=$cache/kernel q=$cache/qemu peer=10.77.0.1 net=() random=random.trust_cpu=on
  mkdir -p "$w/ctl"
  if [ "$vms" = 2 ]; then
    peer=10.77.0.$((2 - r))
    # a stream socket: it pushes back where a datagram socket would drop frames
    [ "$r" = 0 ] || for _ in {1..100}; do [ -S "$work/net" ] && break; sleep 0.1; done
    local server; [ "$r" = 0 ] && server=on || server=off
    net=(-netdev "stream,id=n,server=$server,addr.type=unix,addr.path=$work/net"
         -device "virtio-net-pci,netdev=n,mac=52:54:00:77:00:0$((r + 1)),host_mtu=$mtu,romfile=")
  fi
  printf '%s\n' "rank=$r size=$vms dev=$dev mtu=$mtu" >"$w/ctl/vars"
  { printf '%s\n' \
      "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8" \
      "peer=$peer limit=$limit cwd=$(printf %q "$cwd")"
    cat <<'EOF'
c=/run/rdma-vm; . $c/vars
exec </dev/null >/run/rdma-vm.out 2>/run/rdma-vm.err
[ ! -s $c/setup.err ] || echo "$(<$c/setup.err)" >&2
ulimit -l unlimited
case ,$dev, in *,rxe,*) rdma link add rxe0 type rxe netdev rnet0
  for i in {1..50}; do # the GID of the IPv4 address appears a moment later
    [[ $(</sys/class/infiniband/rxe0/ports/1/gids/1) = *:ffff:* ]] && break; busybox sleep 0.1
  done ;;
esac
case ,$dev, in *,siw,*) rdma link add siw0 type siw netdev rnet0 ;; esac
EOF
    printf '%s\n' ${mountlines[@]+"${mountlines[@]}"}
    cat <<'EOF'
export RDMA_VM_RANK=$rank RDMA_VM_SIZE=$size RDMA_VM_IP=10.77.0.$((rank + 1)) RDMA_VM_PEER=$peer
case ,$dev, in *,rxe,*) export RDMA_VM_DEV=rxe0 ;; *,siw,*) export RDMA_VM_DEV=siw0 ;; esac
pause() { read -rt 0.1 <> <(:); }
if [ "$size" = 2 ]; then # start together
  >$c/ready; while [ ! -e $c/go ]; do pause; done
fi
read -r up _ </proc/uptime; echo "$up" >$c/uptime
cd "$cwd"
EOF
    printf 'export %q\n' ${envs[@]+"${envs[@]}"} | grep -v "^export ''$" || :
    printf 'setsid -w timeout -k 5 "$limit" '; printf '%q ' "${cmd[@]}"; echo
    cat <<'EOF'
rc=$?
busybox dmesg >$c/dmesg
echo "$rc" >$c/rc
if [ "$size" = 2 ]; then # the peer may still need this kernel's replies
  while [ ! -e $c/end ]; do pause; done
fi
busybox sync
busybox poweroff -f
EOF
  } >"$w/ctl/guest.sh"
  mkfifo "$w/out" "$w/err"
  if [ "$vms" = 2 ]; then
    sed -u "s/^/[$r] /" <"$w/out" & pids+=($!)
    sed -u "s/^/[$r] /" <"$w/err" >&2 & pids+=($!)
  else
    cat <"$w/out" & pids+=($!)
    cat <"$w/err" >&2 & pids+=($!)
  fi
  readers+=("${pids[@]: -2}")
  LD_LIBRARY_PATH=$q/usr/lib/x86_64-linux-gnu:$q/lib/x86_64-linux-gnu \
    timeout -k 5 $((limit + 90)) "$q/usr/bin/qemu-system-x86_64" \
    -L "$q/usr/share/qemu" -L "$q/usr/share/seabios" \
    -M q35,usb=off -accel tcg,thread=multi -cpu max -smp "$cpus" -m "$mem" \
    -nodefaults -display none -no-reboot -serial "file:$w/console" \
    -kernel "$k/vmlinux" -initrd "$cache/initrd" \
    -append "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr audit=0 apparmor=0 $random net.ifnames=0" \
    -virtfs "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap" \
    -virtfs "local,path=$k/lib/modules,mount_tag=modules,security_model=none,readonly=on" \
    -virtfs "local,path=$w/ctl,mount_tag=ctl,security_model=none" \
    ${fsargs[@]+"${fsargs[@]}"} ${net[@]+"${net[@]}"} \
    -object rng-random,id=rng,filename=/dev/urandom -device virtio-rng-pci,rng=rng \
    -device virtio-serial-pci \
    -chardev "file,id=o,path=$w/out" -device virtserialport,chardev=o,name=out \
    -chardev "file,id=e,path=$w/err" -device virtserialport,chardev=e,name=err \
    </dev/null >"$w/qemu.log" 2>&1 &
  vmpids+=($!); pids+=($!)
}

cmd=("$@") vmpids=() readers=()
for ((r = 0; r < vms; r++)); do start_vm "$r"; done
if [ "$vms" = 2 ]; then
  # start the commands together, and keep both VMs until both have ended
  both() { # FILE SIGNAL: once each VM has written FILE, or one is gone
    until [ -e "$work/0/ctl/$1" ] && [ -e "$work/1/ctl/$1" ]; do
      kill -0 "${vmpids[0]}" 2>/dev/null && kill -0 "${vmpids[1]}" 2>/dev/null || break
      sleep 0.1
    done
    : >"$work/0/ctl/$2"; : >"$work/1/ctl/$2"
  }
  both ready go
  both rc end
fi
status=0
for ((r = 0; r < vms; r++)); do
  wait "${vmpids[r]}" || :
  rc=$(cat "$work/$r/ctl/rc" 2>/dev/null || echo 125)
  if [ "$rc" = 125 ]; then
    echo "rdma-vm: VM $r ended without a result; the end of its console:" >&2
    tail -n 25 "$work/$r/qemu.log" "$work/$r/console" >&2 2>/dev/null || :
  fi
  [ "$status" != 0 ] || status=$rc
  [ -z "${RDMA_VM_VERBOSE:-}" ] ||
    echo "rdma-vm: VM $r ready after $(cat "$work/$r/ctl/uptime" 2>/dev/null) s of guest time, rc $rc" >&2
done
for p in "${readers[@]}"; do wait "$p" || :; done
exit "$status"
