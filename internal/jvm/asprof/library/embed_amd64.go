//go:build amd64 && !noasprof

package library

import "embed"

//go:embed all:amd64
var embedded embed.FS
