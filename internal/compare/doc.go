// Package compare tells two recordings of a program apart: which findings are new and gone, which numbers and which methods changed by
// more than samples of one and the same program differ by chance.
//
// It is a pure function of the recordings. What "by chance" means, with the measurements behind it, is in
// docs/decisions/0012-noise-is-not-news.md.
package compare
