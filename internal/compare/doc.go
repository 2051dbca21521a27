// Package compare compares two recordings of a program: which findings are new or gone, and which numbers and methods
// changed by more than samples of the same program differ by chance.
//
// It works in three steps, each in files that can be read alone:
//
//   - read_*.go take from one recording what a comparison needs, and know of no other recording;
//   - pair_*.go put what two recordings have of one thing side by side, and judge nothing;
//   - judge_*.go say what changed for certain, what counts, and what it comes to.
//
// A step refers to nothing of a later one; a test checks this.
//
// The package is a pure function of the recordings. What "by chance" means, with the measurements behind it, is in
// docs/decisions/0012-noise-is-not-news.md.
package compare
