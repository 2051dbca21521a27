package sockets

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
)

// TestDeadOwners: a process that has ended owns nothing any more, so the search finds who inherited its sockets. Nor
// does a process that got the same pid own them. A living owner stays.
func TestDeadOwners(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o := newOwners(collect.Env{Host: host.Local()})
	hold := func(inode uint64, destination string, pid int) {
		p := owner{pid: strconv.Itoa(pid), comm: "x"}
		o.known[inode] = p
		o.most(destination, p, 1)
		o.searched[destination] = true
		o.alive(pid)
	}
	hold(1, "10.0.0.1:1", os.Getpid())
	hold(2, "10.0.0.1:1", cmd.Process.Pid)
	hold(3, "10.0.0.2:1", cmd.Process.Pid)
	hold(4, "10.0.0.3:1", os.Getppid())
	o.began[strconv.Itoa(os.Getppid())]-- // the number was another's before
	o.forgetDead()
	if o.of(1).pid == "" || o.of(2).pid == "" || o.of(4).pid != "" {
		t.Errorf("known are %v: want all but that of another process of the same number", o.known)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	o.forgetDead()
	if o.of(1).pid == "" || o.of(2).pid != "" || o.of(3).pid != "" {
		t.Errorf("known are %v: want that of the living", o.known)
	}
	if len(o.flows["10.0.0.1:1"]) != 1 || o.flows["10.0.0.2:1"] != nil || o.searched["10.0.0.2:1"] {
		t.Errorf("flows %v, searched %v: want one of the first destination, and the second to be searched again",
			o.flows, o.searched)
	}
}
