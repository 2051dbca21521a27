// Package compare tells two recordings of a program apart: which findings are new and gone, which numbers and which
// methods changed by more than samples of one and the same program differ by chance.
//
// It does so in three steps, each in files that can be read alone:
//
//   - read_*.go take from one recording what a comparison needs, and know of no other recording;
//   - pair_*.go put what two recordings have of one thing side by side, and judge nothing;
//   - judge_*.go say what changed for certain, what counts, and what it comes to.
//
// A step refers to nothing of a later one; a test says so.
//
// The package is a pure function of the recordings. What "by chance" means, with the measurements behind it, is in
// docs/decisions/0012-noise-is-not-news.md.
package compare
