package perfmap

import _ "embed" // for go:embed

// agent is agent/agent.c, compiled by agent/build.sh.
//
//go:embed agent/arm64.so
var agent []byte
