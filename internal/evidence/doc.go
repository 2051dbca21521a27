// Package evidence reads what several rules need from a recording, one file per subject: destinations, flows,
// listeners, local ports, CPU time, limits, the JVM, waits, culprits. It provides numbers with their arithmetic, and
// the thresholds and sentences that rules share. It judges nothing: it knows no rule.
package evidence
