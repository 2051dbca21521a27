package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// mark returns a cell's text without its reason.
func (c cell) mark() string {
	return map[status]string{ok: "ok", tooOld: "not here", notThere: "-", failed: "FAILED"}[c.status]
}

// since returns the release that the feature declares.
func (m *matrix) since(f feature) string { return f.floor(m.floors).Release }

// text returns the table for a terminal, with the reasons below it.
func (m *matrix) text(columns []kernel) string {
	var b strings.Builder
	width := len("feature")
	for _, f := range m.features {
		width = max(width, len(f.name))
	}
	row := func(name, since string, mark func(kernel) string) {
		line := fmt.Sprintf("%-*s  %-5s", width, name, since)
		for _, k := range columns {
			line += fmt.Sprintf("  %-*s", columnWidth(k), mark(k))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	row("feature", "since", func(k kernel) string { return k.name })
	for _, f := range m.features {
		row(f.name, m.since(f), func(k kernel) string { return m.cells[place{f.name, k.name}].mark() })
	}
	for _, k := range columns {
		fmt.Fprintf(&b, "%s is %s\n", k.name, m.releases[k])
	}
	for _, line := range m.reasons(columns) {
		fmt.Fprintf(&b, "%s\n", line)
	}
	return b.String()
}

func columnWidth(k kernel) int { return max(len(k.name), len("not here")) }

// reasons returns the distinct reasons of all cells that are not ok, and what was measured.
func (m *matrix) reasons(columns []kernel) []string {
	var out []string
	for _, f := range m.features {
		where, order := map[cell][]string{}, []cell{}
		for _, k := range columns {
			c := m.cells[place{f.name, k.name}]
			if c == (cell{status: ok}) {
				continue
			}
			if where[c] == nil {
				order = append(order, c)
			}
			where[c] = append(where[c], k.name)
		}
		for _, c := range order {
			out = append(out, fmt.Sprintf("%s, %s: %s: %s", f.name, strings.Join(where[c], ", "), c.mark(), c.why))
		}
	}
	return out
}

// document returns the table as a page.
func (m *matrix) document(columns []kernel, when time.Time) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Kernels

What depends on the kernel, tested on each: as many events in as a prime number, exactly that many out, and a second source that agrees.
`+"`make test-kernels`"+` runs the matrix, in guests (qemu) that have Debian's kernels; this page is its result of %s.
"since" is what the collector declares: on an older kernel, and nowhere else, may a feature be missing.

| feature | since |`, when.UTC().Format(time.DateOnly))
	for _, k := range columns {
		fmt.Fprintf(&b, " %s |", k.name)
	}
	b.WriteString("\n| --- | --- |" + strings.Repeat(" --- |", len(columns)) + "\n")
	for _, f := range m.features {
		fmt.Fprintf(&b, "| %s | %s |", f.name, m.since(f))
		for _, k := range columns {
			fmt.Fprintf(&b, " %s |", m.cells[place{f.name, k.name}].mark())
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for _, k := range columns {
		fmt.Fprintf(&b, "- %s is %s\n", k.name, m.releases[k])
	}
	for _, line := range m.reasons(columns) {
		fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(line, "\n", " "))
	}
	return b.Bytes()
}
