//go:build noasprof || !(amd64 || arm64)

package library

import "embed"

var embedded embed.FS // nothing: built with -tags noasprof, or for a machine async-profiler is not bundled for
