package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording/partial"
)

// TestBehindSudoReads shows which of sudo's variables are trusted.
func TestBehindSudoReads(t *testing.T) {
	for _, tt := range []struct {
		euid     int
		uid, gid string
		want     *partial.Owner
	}{
		{0, "1000", "1001", &partial.Owner{UID: 1000, GID: 1001}},
		{1000, "1000", "1001", nil}, // only root gives files away
		{0, "0", "0", nil},
		{0, "", "", nil},
		{0, "1000", "", nil},
		{0, "-1", "1001", nil},
		{0, "1000", "4294967295", nil}, // -1, which chown(2) leaves as it is
		{0, "1000 ", "1001", nil},
		{0, "root", "root", nil},
	} {
		env := map[string]string{"SUDO_UID": tt.uid, "SUDO_GID": tt.gid}
		got := behindSudo(tt.euid, func(name string) string { return env[name] })
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%+v: %s", tt, diff)
		}
	}
}
