#!/bin/bash
# Compiles agent.c for both architectures into amd64.so and arm64.so, which are committed, so that a build
# of perfdoctor needs Go and nothing else. sums says from which source, by which compiler, and what came of it.
# Another compiler makes other bytes: with one of another version, and the source unchanged, the objects are only
# compared with their checksums. Why: docs/decisions.
set -euo pipefail
cd "$(dirname "$0")"

compilers=(gcc aarch64-linux-gnu-gcc)
objects=(amd64.so arm64.so)
# Freestanding, with calls to nothing (-mno-outline-atomics is arm64's own), and without what changes from build to build.
flags=(-std=c11 -O2 -Wall -Wextra -Werror -ffreestanding -fno-builtin -fno-stack-protector -fvisibility=hidden -fPIC
	-shared -nostdlib -s -Wl,--build-id=none,-z,noexecstack,-z,relro,-z,now,-z,noseparate-code,--hash-style=both,--no-undefined)

source=$(cat agent.c build.sh | sha256sum | cut -d ' ' -f 1)
recorded() { sed -n "s/^$1: //p" sums 2>/dev/null || true; }
version() { LC_ALL=C "$1" --version 2>/dev/null | head -n 1 | sed 's/^[^ ]* //' || true; }

same=true
for compiler in "${compilers[@]}"; do
	if [[ $(recorded "$compiler") != "$(version "$compiler")" ]]; then same=false; fi
done
if ! $same && [[ $(recorded source) == "$source" ]]; then
	grep -v : sums | sha256sum --quiet --check
	exit 0
fi
for compiler in "${compilers[@]}"; do
	command -v "$compiler" >/dev/null || { echo "build.sh: agent.c has changed: run .ci/deps $compiler first" >&2; exit 1; }
done

gcc "${flags[@]}" -o amd64.so agent.c
aarch64-linux-gnu-gcc "${flags[@]}" -mno-outline-atomics -o arm64.so agent.c
chmod 644 "${objects[@]}"
{
	echo "source: $source"
	for compiler in "${compilers[@]}"; do echo "$compiler: $(version "$compiler")"; done
	sha256sum "${objects[@]}"
} >sums
