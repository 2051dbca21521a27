//go:build arm64 && !noasprof

package library

import "embed"

//go:embed all:arm64
var embedded embed.FS
