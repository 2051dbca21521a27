// Package keynumber reads the key numbers of a recording: CPU time per request, time in GC pauses, and the like, each
// with its bounds as far as the samples of the recording show them. The report of one recording shows them, the
// comparison of two and the trend of many set them against each other.
package keynumber
