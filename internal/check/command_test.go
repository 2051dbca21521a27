package check

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestQuoteIsOneWord(t *testing.T) {
	for in, want := range map[string]string{
		"eth0": "eth0", "": "''", "$(reboot)": "'$(reboot)'", "a b": "'a b'", "it's": `'it'\''s'`, "`x`": "'`x`'",
		"a;b":      "'a;b'",
		"[::1]:80": "'[::1]:80'", "a\nb'c": `$'a\012b\047c'`, "\x1b[2J": `$'\033[2J'`, "a\u202eb": `$'a\342\200\256b'`,
		"\xff": `$'\377'`, "~root": "'~root'", "a=b": "'a=b'",
	} {
		if got := Quote(in); got != want {
			t.Errorf("%q became %s, want %s", in, got, want)
		}
		out, err := exec.Command("sh", "-c", "printf '<%s>' "+Quote(in)).Output()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(out), "<") != 1 || (!strings.HasPrefix(want, "$") && string(out) != "<"+in+">") {
			t.Errorf("a shell read %s as %s", Quote(in), out)
		}
	}
}

func TestCommandf(t *testing.T) {
	inner := Commandf("ethtool -G %s rx %.0f", "$(reboot)", 512.0)
	if diff := cmp.Diff(Command("nsenter -t 7 -n ethtool -G '$(reboot)' rx 512"), Commandf("nsenter -t %d -n %s", 7,
		inner)); diff != "" {
		t.Error(diff)
	}
}
