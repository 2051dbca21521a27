package recording

import (
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// redactName removes secrets from the name of a process or thread, which a program may set to anything.
func redactName(name string) string {
	const shortest = 16 // of tokens known by their form; a shorter name can hold a secret only behind a separator
	if len(name) < shortest && !strings.ContainsAny(name, "=: ") {
		return name
	}
	return redactText(name)
}

// isName reports whether programs fill a label with names of their own.
func isName(label string) bool {
	return slices.Contains([]string{"comm", "waker_comm", "thread", "holder"}, label)
}

// redactNames removes secrets from the labels of a metric that hold names.
func (a *Appender) redactNames(m metric.Metric, labels []string) {
	for i, l := range m.Describe().Labels {
		if isName(l) {
			labels[i] = a.redactName(labels[i])
		}
	}
}

// redactName caches redacted names: one sample has the name of each process some twenty times.
func (a *Appender) redactName(name string) string {
	safe, ok := a.names[name]
	if !ok {
		if a.names == nil {
			a.names = map[string]string{}
		}
		safe = redactName(name)
		a.names[name] = safe
	}
	return safe
}

// withoutSecrets returns the profile with its threads' names redacted, and whether any was redacted. It leaves the
// caller's profile unchanged.
func withoutSecrets(p *stacks.Profile) (own *stacks.Profile, redacted bool) {
	clone := *p
	clone.Threads = slices.Clone(p.Threads)
	for i := range clone.Threads {
		name := redactName(clone.Threads[i].Name)
		redacted = redacted || name != clone.Threads[i].Name
		clone.Threads[i].Name = name
	}
	return &clone, redacted
}
