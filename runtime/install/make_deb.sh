#!/bin/bash
# make_deb.sh VERSION FOLDER: makes the Debian packages of what is built, and lets lintian look at them. Called by `make deb`.
set -euo pipefail
version=$1 folder=$2
here=$(dirname "$0")
arch=$(dpkg --print-architecture)
maintainer=$(sed -n "s/^Maintainer: //p" "$here/debian/control")
if [ -n "${DEBEMAIL:-}" ]; then maintainer="${DEBFULLNAME:-Switchyard developers} <$DEBEMAIL>"; fi
libdir=/usr/lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH)
date=$(git log -1 --format=%cd --date=rfc 2>/dev/null || date -R)
SOURCE_DATE_EPOCH=$(date -d "$date" +%s) # two builds of one commit give the same bytes
export SOURCE_DATE_EPOCH
stage=$folder/stage

install_part() { # PACKAGE GOAL
    make --no-print-directory -s CUDA=0 MPI=0 DESTDIR="$stage/$1" PREFIX=/usr LIBDIR="$libdir" UNITDIR=/lib/systemd/system SYSCONFDIR=/etc "$2" >/dev/null
}

strip_all() {
    find "$stage" -type f \( -name '*.so.*' -o -path '*/bin/*' \) -exec strip --strip-unneeded --remove-section=.comment --remove-section=.note {} +
}

# Names of packages that the files need, by dpkg-shlibdeps, which wants a debian/control to read.
depends_of() { # PACKAGE FILE
    local work=$folder/shlibdeps
    mkdir -p "$work/debian"
    cp "$here/debian/control" "$work/debian/control"
    (cd "$work" && dpkg-shlibdeps -O --ignore-missing-info -xlibswitchyard0 "$OLDPWD/$stage/$1/$2" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

changelog() {
    printf 'switchyard (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md in /usr/share/doc/switchyard.\n\n -- %s  %s\n' "$version" "$maintainer" "$date"
}

documents() { # PACKAGE
    local doc=$stage/$1/usr/share/doc/$1
    install -d "$doc"
    install -m 644 "$here/debian/copyright" "$doc/copyright"
    changelog | gzip -9n >"$doc/changelog.gz"
    if [ "$1" = switchyard ]; then
        install -m 644 CHANGELOG.md "$doc/"
        gzip -9n "$doc/CHANGELOG.md"
        install -d "$stage/$1/usr/share/lintian/overrides"
        install -m 644 "$here/debian/switchyard.lintian-overrides" "$stage/$1/usr/share/lintian/overrides/switchyard"
    fi
}

# The package's paragraph of debian/control, with what only the build knows.
control() { # PACKAGE DEPENDS
    local size
    size=$(du -k --apparent-size -s "$stage/$1" | cut -f1)
    awk -v package="$1" 'BEGIN { RS = ""; FS = "\n" } $1 == "Package: " package' "$here/debian/control" |
        sed -e "s|^Architecture: any|Architecture: $arch|" -e "s|\${version}|$version|" -e "s|\${shlibs:Depends}|$2|" \
            -e "1a Source: switchyard\nVersion: $version\nInstalled-Size: $size\nMaintainer: $maintainer"
}

build() { # PACKAGE DEPENDS
    local root=$stage/$1
    documents "$1"
    install -d "$root/DEBIAN"
    control "$1" "$2" >"$root/DEBIAN/control"
    for script in postinst prerm postrm conffiles triggers shlibs; do
        if [ -e "$here/debian/$1.$script" ]; then
            case $script in postinst | prerm | postrm) mode=755 ;; *) mode=644 ;; esac
            install -m $mode "$here/debian/$1.$script" "$root/DEBIAN/$script"
        fi
    done
    (cd "$root" && find . -type f ! -path './DEBIAN/*' ! -path './etc/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    chmod -R u=rwX,go=rX "$root"
    dpkg-deb --root-owner-group -Zxz --build "$root" "$folder/${1}_${version}_$arch.deb" >/dev/null
    echo "  DEB     $folder/${1}_${version}_$arch.deb"
}

rm -rf "$folder"
mkdir -p "$stage"
install_part switchyard install-program
install_part libswitchyard0 install-library
install_part libswitchyard-dev install-dev
strip_all
gzip -9n "$stage"/switchyard/usr/share/man/man1/*.1
build switchyard "$(depends_of switchyard usr/bin/switchyard)"
build libswitchyard0 "$(depends_of libswitchyard0 "${libdir#/}/libswitchyard.so.0")"
build libswitchyard-dev ""
rm -rf "$stage" "$folder/shlibdeps"
lintian --fail-on error,warning --allow-root "$folder"/*.deb
