// Package evidence is what several rules read of a recording, one file a subject: destinations, flows, listeners, local
// ports, CPU time, limits, the JVM, waits, culprits. It gives numbers with their arithmetic, the thresholds and the
// sentences that rules share, and judges nothing: it knows no rule.
package evidence
