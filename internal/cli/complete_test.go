package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCompletionsAreTame: names that a shell would run or read as a flag are not completed. They do not affect other
// names.
func TestCompletionsAreTame(t *testing.T) {
	list := []named{
		{choice: "nginx"},
		{choice: "nginx: worker"},
		{choice: "$(reboot)"},
		{choice: "`reboot`"},
		{choice: "a;reboot"},
		{choice: "a\nreboot"},
		{choice: "a\treboot"},
		{choice: "--html=/etc/passwd"},
		{choice: "-p"},
		{choice: "*"},
		{choice: "~"},
		{choice: ""},
		{choice: "kworker/0:1"},
		{"4021", "java"},
		{"4022", "$(reboot)"},
		{"/system.slice/nginx.service", "nginx"},
	}
	want := []string{"nginx", "kworker/0:1", "4021\tjava", "4022", "/system.slice/nginx.service\tnginx"}
	if diff := cmp.Diff(want, completions(list, "")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"4021\tjava", "4022"}, completions(list, "402")); diff != "" {
		t.Error(diff)
	}
}
