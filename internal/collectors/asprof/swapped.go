package asprof

import (
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// tellSwapped records that a stranger's library is in the JVM. There is no profile then: nothing that the JVM says
// about itself can be trusted.
func tellSwapped(a *recording.Appender, vm *jvm.VM, e *jvm.SwappedError) {
	a.Info(metric.JVMSwappedLibrary, strconv.Itoa(vm.PID), e.Path, strconv.FormatUint(e.Written, 10),
		strconv.FormatUint(e.Loaded, 10), strconv.Itoa(e.UID))
	for _, m := range events {
		a.Missing(m.metric, recording.StatusFailed, e.Error(), "")
	}
}

// tellVerified records that the library is the one that was placed, or that this cannot be verified.
func (s *source) tellVerified(a *recording.Appender) {
	if s.session.Verified {
		a.None(metric.JVMSwappedLibrary)
		return
	}
	a.Missing(metric.JVMSwappedLibrary, recording.StatusDenied,
		"what the JVM has mapped cannot be compared with what was placed: that needs CAP_SYS_ADMIN or "+
			"CAP_CHECKPOINT_RESTORE",
		"run perfdoctor as root")
}
