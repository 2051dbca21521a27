package evidence

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TargetSubject returns the process of the target that its facts are about; the host if there is none.
func TargetSubject(p *check.Pass) check.Subject {
	for _, s := range p.Info(metric.TargetInfo) {
		if pid := s.Label("pid"); pid != "" && pid != "0" {
			return PIDSubject(pid, s.Label("comm"))
		}
	}
	return check.Host
}

// CPUSubject returns the subject for one CPU.
func CPUSubject(id string) check.Subject { return check.Subject{Kind: "cpu", ID: id} }

// JVMSubject returns the subject for the process of a JVM.
func JVMSubject(p *check.Pass, pid string) check.Subject {
	for _, s := range p.Info(metric.JVMInfo, "pid", pid) {
		return PIDSubject(pid, s.Label("comm"))
	}
	return PIDSubject(pid, "java")
}

// PIDSubject returns the subject for one process, "pid 4021 (java)".
func PIDSubject(pid, comm string) check.Subject {
	return check.Subject{Kind: "pid", ID: PIDName(pid, comm)}
}

// DestinationSubject returns the subject of a finding about a path.
func DestinationSubject(c *ClientPath) check.Subject {
	return check.Subject{Kind: "destination", ID: c.Destination}
}

// NetNSSubject returns the subject of a finding about the target's whole network namespace.
func NetNSSubject(p *check.Pass) check.Subject {
	t := p.Meta.Target
	if t.PID == 0 {
		return check.HostNetNS
	}
	return check.Subject{Kind: "netns", ID: "of pid " + PIDName(fmt.Sprint(t.PID), t.Name)}
}

// PIDName returns "4021 (java)".
func PIDName(pid, comm string) string {
	if comm == "" {
		return pid
	}
	return pid + " (" + comm + ")"
}
