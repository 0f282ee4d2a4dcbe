#!/bin/bash
# usage: gpu_packages.sh [FOLDER]
# Copies the headers and libraries that preft and its tests are built with from this machine to
# FOLDER (build/gpu-packages), and writes a pkg-config there that names them: a machine without
# packages and network then builds with
#     make PKG_CONFIG=FOLDER/pkg-config
# See tests/gpu.sh. The machines must share the processor family; the C library there must be at
# least as new as the version that this prints.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/gpu-packages}
packages="ncursesw sqlite3 libsodium libutf8proc libpcre2-8 jansson md4c cmocka"

missing=$(for p in $packages; do pkg-config --exists "$p" || echo "$p"; done)
[ -z "$missing" ] || { echo "missing here: $missing (make deps-tests installs them)" >&2; exit 1; }
rm -rf "$folder"
mkdir -p "$folder/include" "$folder/lib"

# The public headers of a library, below the folder that #include starts from.
headers() { # FILE.pc's library
    case $1 in
    ncursesw) echo curses.h ncurses.h ncurses_dll.h unctrl.h term.h ;;
    sqlite3) echo sqlite3.h ;;
    libsodium) echo sodium.h sodium ;;
    libutf8proc) echo utf8proc.h ;;
    libpcre2-8) echo pcre2.h ;;
    jansson) echo jansson.h jansson_config.h ;;
    md4c) echo md4c.h ;;
    cmocka) echo cmocka.h ;;
    esac
}

for package in $packages; do
    for header in $(headers "$package"); do
        for from in "$(pkg-config --variable=includedir "$package")" "/usr/include/$(gcc -print-multiarch)" /usr/include; do
            [ -e "$from/$header" ] || continue
            cp -rL "$from/$header" "$folder/include/"
            break
        done
        [ -e "$folder/include/$header" ] || { echo "no header $header of $package" >&2; exit 1; }
    done
    for word in $(pkg-config --libs-only-l "$package"); do
        library=lib${word#-l}.so
        file=$(readlink -f "$(gcc -print-file-name="$library")")
        # A linker script names the library that it stands for.
        real=$(head -c 200 "$file" | grep -aoE '^INPUT\([^ )]+' | cut -d'(' -f2) || true
        [ -z "$real" ] || file=$(readlink -f "$(gcc -print-file-name="$real")")
        [ -f "$file" ] || { echo "no library $library of $package" >&2; exit 1; }
        soname=$(objdump -p "$file" | awk '$1 == "SONAME" { print $2 }')
        cp "$file" "$folder/lib/$soname"
        cp "$file" "$folder/lib/$library" # not a link: those may not survive the way
    done
done

# shellcheck disable=SC2016,SC2086 # expanded by the script that is written; words
sed "s|CFLAGS|$(pkg-config --cflags-only-other $packages)|; s|LIBS|$(pkg-config --libs-only-l $packages)|" >"$folder/pkg-config" <<'SCRIPT'
#!/bin/bash
# Answers for the libraries beside it, whichever of them are asked for.
here=$(cd "$(dirname "$0")" && pwd)
for word; do
    case $word in
    --cflags) echo "-I$here/include CFLAGS" ;;
    --libs) echo "-L$here/lib -Wl,--disable-new-dtags,-rpath,$here/lib LIBS" ;;
    esac
done
exit 0
SCRIPT
chmod +x "$folder/pkg-config"
du -sh "$folder" | cut -f1
objdump -T "$folder"/lib/*.so.* | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1
