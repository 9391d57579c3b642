#!/bin/sh
# @NAME@: compiles and links @LANGUAGE@ programs against the MPI library installed beside this script.
#
#   -show, -showme               print the whole command instead of running it
#   -compile-info, -link-info    print the command that compiles, or links
#   -showme:compile, -showme:link, -showme:incdirs, -showme:libdirs, -showme:command, -showme:version
#   -cc=COMPILER, -cxx=COMPILER  the compiler to use; else @VARIABLES@, else @DEFAULT@
#
# Everything else goes to the compiler as it is.

# The installation is where this script lies, seen through symbolic links.
self=$0
case $self in
*/*) ;;
*) self=$(command -v -- "$self") ;;
esac
while [ -L "$self" ]; do
    target=$(readlink -- "$self") || exit 1
    case $target in
    /*) self=$target ;;
    *) self=$(dirname -- "$self")/$target ;;
    esac
done
prefix=$(CDPATH='' cd -- "$(dirname -- "$self")/.." && pwd -P) || exit 1

compiler=@COMPILER@
show=no
link=yes
input=no
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    case $argument in
    -show | -showme | --showme) show=all && continue ;;
    -compile-info | -compile_info) show=compile-info && continue ;;
    -link-info | -link_info) show=link-info && continue ;;
    -showme:* | --showme:*) show=${argument#*:} && continue ;;
    -cc=* | -CC=* | -cxx=* | -CXX=*) compiler=${argument#*=} && continue ;;
    -c | -E | -S | -M | -MM | -fsyntax-only) link=no ;;
    -) input=yes ;;
    -*) ;;
    *) input=yes ;;
    esac
    set -- "$@" "$argument"
done

# Prints words so that a shell reads them back as they are.
quoted() {
    separator=
    for word in "$@"; do
        case $word in
        '' | *[!A-Za-z0-9_/.,:=+@%-]*)
            printf "%s'" "$separator"
            printf %s "$word" | sed "s/'/'\\\\''/g"
            printf "'"
            ;;
        *) printf '%s%s' "$separator" "$word" ;;
        esac
        separator=' '
    done
    printf '\n'
}

# The flags, each of them one word even if the installation lies under a name with spaces.
compile_only() {
    "$@" "-I$prefix/include"
}
compile_and_link() {
    "$@" "-I$prefix/include" "-L$prefix/lib" -Xlinker -rpath -Xlinker "$prefix/lib" -Xlinker --enable-new-dtags -lmpi_abi
}
link_only() {
    "$@" "-L$prefix/lib" -Xlinker -rpath -Xlinker "$prefix/lib" -Xlinker --enable-new-dtags -lmpi_abi
}

# A compiler given with options of its own ("ccache gcc") is several words, so it is not quoted below.
# shellcheck disable=SC2086
case $show in
compile-info) compile_only quoted $compiler ;;
link-info) compile_and_link quoted $compiler ;;
compile) compile_only quoted ;;
link | libs) link_only quoted ;;
incdirs) quoted "$prefix/include" ;;
libdirs) quoted "$prefix/lib" ;;
command) printf '%s\n' "$compiler" ;;
version) printf 'Ferrovia @VERSION@\n' ;;
all)
    if [ "$link" = yes ]; then
        compile_and_link quoted $compiler "$@"
    else
        compile_only quoted $compiler "$@"
    fi
    ;;
no)
    if [ "$input" = no ]; then
        exec $compiler "$@" # a question to the compiler, such as --version
    elif [ "$link" = yes ]; then
        compile_and_link exec $compiler "$@"
    else
        compile_only exec $compiler "$@"
    fi
    ;;
*)
    printf '%s: unknown question -showme:%s\n' "$0" "$show" >&2
    exit 1
    ;;
esac
