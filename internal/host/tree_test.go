package host

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the wanted output in testdata")

// plant writes the tree of an archive to a directory. A file that begins with "-> " is a symbolic link, and ␀ stands
// for a zero byte.
func plant(t testing.TB, files []txtar.File) *Host {
	t.Helper()
	root := t.TempDir()
	for _, f := range files {
		name := filepath.Join(root, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if link, ok := strings.CutPrefix(string(f.Data), "-> "); ok {
			if err := os.Symlink(strings.TrimSpace(link), name); err != nil {
				t.Fatal(err)
			}
			continue
		}
		text := strings.ReplaceAll(string(f.Data), "␀", "\x00")
		if strings.HasSuffix(text, "\x00\n") {
			text = text[:len(text)-1] // the archive adds the line break
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &Host{Proc: root + "/proc", Sys: root + "/sys", Etc: root + "/etc"}
}

// TestTrees resolves the selectors in the file "select" of each archive, one a line, on the archive's tree.
func TestTrees(t *testing.T) {
	archives, err := filepath.Glob("../../testdata/trees/host/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal("no archives: ", err)
	}
	for _, name := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) { testTree(t, name) })
	}
}

func testTree(t *testing.T, name string) {
	a, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	h := plant(t, a.Files)
	var got strings.Builder
	for i := range a.Files {
		if a.Files[i].Name == "select" {
			for line := range strings.Lines(string(a.Files[i].Data)) {
				describeSelection(&got, h, strings.TrimSpace(line))
			}
		}
	}
	text := strings.ReplaceAll(got.String(), filepath.Dir(h.Proc), "")
	last := &a.Files[len(a.Files)-1]
	if last.Name != "want" || text == "" {
		t.Fatal("the archive must have a file select, and end with the file want")
	}
	if *update {
		last.Data = []byte(text)
		if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(last.Data), text); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func describeSelection(w *strings.Builder, h *Host, line string) {
	fmt.Fprintf(w, "# %s\n", line)
	key, value, _ := strings.Cut(line, " ")
	var sel Selector
	switch key {
	case "pid":
		sel.PID, _ = strconv.Atoi(value)
	case "comm":
		sel.Comm = value
	case "cgroup":
		sel.CgroupPath = value
	case "container":
		sel.ContainerID = value
	case "own-container":
		id, name, err := h.ownContainer()
		fmt.Fprintf(w, "%s %s %v\n", id, name, err)
		return
	case "probe":
		for _, c := range Capabilities() {
			if c.Name == value {
				p := h.Probe(c)
				fmt.Fprintf(w, "%s: %s; remedy: %s\n", p.Status, p.Reason, p.Remedy)
			}
		}
		return
	}
	target, err := h.Resolve(context.Background(), sel)
	if err != nil {
		fmt.Fprintf(w, "error (%s): %v\n", kindName(err), err)
		return
	}
	writeTarget(w, h, target)
}

func kindName(err error) string {
	for _, kind := range []error{
		ErrNoSuchProcess, ErrNoSuchCgroup, ErrNoSuchContainer, ErrPermission, ErrAmbiguous, ErrSelector,
	} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return "other"
}

func writeTarget(w *strings.Builder, h *Host, t Target) {
	fmt.Fprintf(w, "%s %q pids %v comm %q start %d nspid %d threads %d\n", t.Kind, t.Name, t.PIDs, t.Comm, t.StartTime,
		t.NSPid, t.Threads)
	fmt.Fprintf(w, "user %d %s group %d argv %q\n", t.UID, t.User, t.GID, t.Cmdline)
	fmt.Fprintf(w, "runtime %s: %s\n", t.Runtime, t.RuntimeReason)
	fmt.Fprintf(w, "net %+v pid %+v\n", t.Namespaces.Net, t.Namespaces.PID)
	if t.ContainerID != "" {
		fmt.Fprintf(w, "container %s %s pod %q\n", t.ContainerRuntime, t.ContainerID, t.PodUID)
	}
	for _, l := range t.Cgroups {
		fmt.Fprintf(w, "v%d %-7s %s = %s\n", l.Version, l.Controller, l.Path, l.Dir)
	}
	for _, n := range t.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	members, err := h.Members(context.Background(), t)
	fmt.Fprintf(w, "members of %q:", t.CgroupDir)
	for _, m := range members {
		fmt.Fprintf(w, " %d", m.PID)
	}
	if err != nil {
		fmt.Fprintf(w, " %v", err)
	}
	fmt.Fprintf(w, "\nalive %t\n", h.Alive(t))
}
