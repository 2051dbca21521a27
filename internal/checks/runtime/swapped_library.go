package runtime

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var swappedLibrary = &check.Check{
	Name:  "swapped-library",
	Stage: check.Runtime,
	Event: true,
	Only:  evidence.OnlyJVM,
	Doc: `Another file than perfdoctor's library was loaded into the JVM

To profile a JVM, perfdoctor writes async-profiler's library into a directory of
the JVM and has the JVM load it. It does so only where no other user can replace
the file. If the JVM has mapped another file all the same, then root or the
JVM's own user has swapped it, and code that nobody asked for runs in the JVM.

Measured: after the load, the file that the JVM has mapped is compared with the
one that was written, by its inode; one that an earlier run placed, by its
content.

Fix: find out who did it, and restart the JVM. Risk: a restart loses what the
JVM holds in memory, which may be evidence.
Disproof: the file that is mapped is known and harmless, such as that of a
security product which replaces libraries.`,
	URL:    "https://man7.org/linux/man-pages/man5/proc_pid_map_files.5.html",
	Needs:  []metric.Metric{metric.JVMSwappedLibrary},
	Uses:   []metric.Metric{metric.JVMInfo},
	Beyond: "the knowledge of whoever replaced the file",
	Run:    runSwappedLibrary,
}

func runSwappedLibrary(p *check.Pass) error {
	list := p.Info(metric.JVMSwappedLibrary)
	n := quantity.Of("libraries swapped", float64(len(list)), "libraries")
	p.Read(n)
	for _, s := range list {
		pid := s.Label("pid")
		p.Report(check.Finding{
			Subject: evidence.JVMSubject(p, pid), Severity: check.Critical,
			Summary: "The JVM has loaded another file than the library that perfdoctor placed for it; that file's " +
				"code ran in it.",
			Evidence: []quantity.Value{n},
			Remedies: []check.Remedy{{
				Action: "Treat the JVM as taken over: save what is mapped for those who look into it, then restart " +
					"the JVM.",
				Command: check.Commandf("ls -l /proc/%s/map_files", pid),
				Risk:    "the restart loses what the JVM holds in memory, which may be evidence",
				Effect:  n.Text() + " -> 0",
			}},
			Disproof: "The mapped file is known and harmless, such as that of a security product which replaces " +
				"libraries.",
			Notes: []string{swapped(s.Label("path"), s.Label("written"), s.Label("loaded"), s.Label("uid"))},
		})
	}
	return nil
}

// swapped says which file was written and which is loaded. An inode of 0 is not known.
func swapped(path, written, loaded, uid string) string {
	text := "placed at " + path
	if written != "0" {
		text += fmt.Sprintf(" as inode %s", written)
	}
	if loaded == "0" {
		return text + "; what was loaded instead has another name now"
	}
	return text + fmt.Sprintf("; loaded was inode %s of uid %s", loaded, uid)
}
