#!/bin/sh
# What the service must not be able to do. TestInstalled runs it in the service's sandbox, where each line must fail,
# and as root without one, where each must succeed: a probe that fails anyway would prove nothing. Its argument is the
# file for the answers.
out=$1
try() {
	name=$1
	shift
	if "$@" >/dev/null 2>&1; then echo "$name allowed"; else echo "$name denied"; fi >>"$out"
}
: >"$out"
try write-etc sh -c ': >/etc/probe && rm /etc/probe'
try write-own-config sh -c ': >/etc/perfdoctor/probe && rm /etc/perfdoctor/probe'
try write-usr sh -c ': >/usr/bin/probe && rm /usr/bin/probe'
try write-other-state sh -c ': >/var/lib/dpkg/probe && rm /var/lib/dpkg/probe'
try write-cgroup sh -c 'd=$(find /sys/fs/cgroup -maxdepth 2 -name system.slice | head -n 1)/probe && mkdir "$d" && rmdir "$d"'
try change-sysctl sh -c 'cat /proc/sys/net/ipv4/tcp_tw_reuse >/proc/sys/net/ipv4/tcp_tw_reuse'
try read-shadow grep -q root: /etc/shadow
try read-home grep -q secret /home/.diary
try see-others-tmp grep -q secret /tmp/other
try mount sh -c 'mount -t tmpfs tmpfs /mnt && umount /mnt'
try new-network unshare --net true
try new-user unshare --user true
try make-device sh -c 'mknod "$0.null" c 1 3 && rm "$0.null"' "$out"
try make-setuid sh -c ': >"$0.suid" && chmod u+s "$0.suid" && rm "$0.suid"' "$out"
try change-owner sh -c ': >"$0.own" && chown 0:65534 "$0.own" && rm "$0.own"' "$out"
try become-another perl -e '$> = 65534; exit($> != 65534)'
try signal-others kill -0 1
try old-personality setarch --addr-no-randomize true
try raw-packets perl -e 'socket(my $s, 17, 3, 0) or exit 1'
try bluetooth-or-vsock perl -e 'socket(my $s, 40, 1, 0) or exit 1'
try code-in-data perl -e 'exit(syscall(9, 0, 4096, 7, 0x22, -1, 0) == -1)' # mmap, writable and executable
try realtime chrt --rr 1 true
try listen perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0) && bind(S, sockaddr_in(0, INADDR_LOOPBACK)) && listen(S, 1) or exit 1'
echo done >>"$out"
