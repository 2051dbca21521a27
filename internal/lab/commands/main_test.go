package commands_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/cli"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/commands"
)

// asProgram, when set, makes this test program perfdoctor: a story needs processes of its own.
const asProgram = "PERFDOCTOR_COMMANDS_TEST"

func TestMain(m *testing.M) {
	if code, child := lab.RunIfChild(); child {
		os.Exit(code)
	}
	if os.Getenv(asProgram) != "" {
		streams := command.Streams{Out: os.Stdout, Err: os.Stderr}
		os.Exit(cli.Run(context.Background(), "v1.2.3", os.Args[1:], streams, commands.Scenario))
	}
	os.Exit(m.Run())
}

// run runs one command line in this process, with the commands that main joins.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Run(t.Context(), "v1.2.3", args, command.Streams{Out: &out, Err: &errs}, commands.Scenario)
	return code, out.String(), errs.String()
}

// wantUsage expects exit code 2, one line that holds want, and no standard output.
func wantUsage(t *testing.T, want string, args ...string) {
	t.Helper()
	code, stdout, stderr := run(t, args...)
	if code != 2 || stdout != "" {
		t.Errorf("exit code %d, want 2; standard output %q", code, stdout)
	}
	if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "perfdoctor: ") ||
		!strings.Contains(stderr, want) {
		t.Errorf("got %q, want one line with %q", stderr, want)
	}
}
