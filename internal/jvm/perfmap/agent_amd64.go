package perfmap

import _ "embed" // for go:embed

// agent is agent/agent.c, compiled by agent/build.sh.
//
//go:embed agent/amd64.so
var agent []byte
