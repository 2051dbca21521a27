package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// conntrackFill is the part of the table to fill: above the level of a warning, and below the 95 % at which the kernel
// evicts.
const conntrackFill = 0.85

// TestConntrackFull fills the table of one namespace up to the machine's own limit, which it does not change.
func TestConntrackFull(t *testing.T) {
	gateway, _ := pair(t)
	must(t, gateway.Masquerade("eth0")) // connections are tracked from the first rule that asks for it
	must(t, gateway.Route("10.92.0.0/16", "10.91.0.2"))
	child, err := gateway.StartChild(nil, lab.ChildOptions{Mode: lab.ModeSleep})
	must(t, err)
	limit := readNumber(t, "/proc/sys/net/netfilter/nf_conntrack_max")
	if limit > 1<<20 {
		t.Skipf("nf_conntrack_max is %d here: filling it would take %d MB of the kernel's memory", limit, limit*320>>20)
	}
	must(t, gateway.Do(func() error { return udpFlows(int(conntrackFill * float64(limit))) }))
	expect(t, want{
		verdict: []string{"conntrack-full"},
		text:    []string{strconv.Itoa(limit), "nf_conntrack_max"}, forbidden: append([]string{"syn-sent-pileup"},
			portChecks...),
	}.complaints, "--pid", pid(child))
}

func readNumber(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	must(t, err)
	return n
}

// udpFlows sends one datagram each to n addresses and ports of 10.92.0.0/16, where nobody is. That makes n flows of one
// socket.
func udpFlows(n int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	const portsEach = 60_000
	for i := range n {
		to := unix.SockaddrInet4{Addr: [4]byte{10, 92, 0, byte(1 + i/portsEach)}, Port: 1024 + i%portsEach}
		if err := unix.Sendto(fd, nil, 0, &to); err != nil {
			return fmt.Errorf("flow %d of %d: %w", i, n, err)
		}
	}
	return nil
}
