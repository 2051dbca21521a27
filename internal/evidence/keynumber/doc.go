// Package keynumber reads the key numbers of a recording: CPU time per request, time in GC pauses, and the like, each
// with the bounds between which it lies as far as the samples of the recording tell. The report of one recording shows
// them, the comparison of two and the trend of many set them against each other.
package keynumber
