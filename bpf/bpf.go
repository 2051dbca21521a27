// Package bpf holds the programs that run in the kernel, one file a question, compiled and with their Go types
// generated.
//
// They are built on BTF tracepoints, which load under lockdown=integrity and on Linux 5.10 and later, where fentry and
// kprobes may not. One object serves all little-endian machines: nothing in it depends on the architecture. The loader
// is internal/collectors/ebpf.
package bpf

//go:generate go tool -modfile=../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type flow -type totals Connections connections.bpf.c -- -O2 -Wall -Werror
//go:generate go tool -modfile=../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type where -type stack -type times -type naming -type dump CPUProfile cpuprofile.bpf.c -- -O2 -Wall -Werror
//go:generate go tool -modfile=../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type spent Softirq softirq.bpf.c -- -O2 -Wall -Werror
//go:generate go tool -modfile=../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type thread -type place -type slept -type wake -type stack -type reason -type times Scheduler scheduler.bpf.c -- -O2 -Wall -Werror
//go:generate go tool -modfile=../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type asker -type asked Binds binds.bpf.c -- -O2 -Wall -Werror
//go:generate go tool -modfile=../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type tcp_socket -type held_socket Sockets sockets.bpf.c -- -O2 -Wall -Werror
//go:generate go tool -modfile=../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type limit Bandwidth bandwidth.bpf.c -- -O2 -Wall -Werror
//go:generate go tool -modfile=../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type failure -type call_totals Syscalls syscalls.bpf.c -- -O2 -Wall -Werror
//go:generate go tool -modfile=../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type end -type times Exchanges exchanges.bpf.c -- -O2 -Wall -Werror
//go:generate go tool -modfile=../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type query -type open -type server -type asked DNS dns.bpf.c -- -O2 -Wall -Werror
//go:generate go tool -modfile=../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type usage -type waiting -type running RunQueue runqueue.bpf.c -- -O2 -Wall -Werror
//go:generate go tool -modfile=../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type search PortSearch portsearch.bpf.c -- -O2 -Wall -Werror
