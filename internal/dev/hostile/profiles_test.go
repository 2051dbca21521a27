package hostile_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// heavyEnv makes this program write a profile instead of running its tests.
const heavyEnv = "PERFDOCTOR_TEST_HEAVY"

// heavy is a profile of stacks that are all different, 40 calls deep. A process of its own makes it: the memory peak
// that getrusage(2) reports for a program begins with that of the process that started it (setmax_mm_hiwater_rss in
// fs/exec.c).
func heavy(p heavyProfile) ([]byte, error) {
	maker := exec.Command(os.Args[0])
	maker.Env = append(os.Environ(),
		fmt.Sprintf("%s=%s %d %d %d", heavyEnv, p.event, p.seed, p.number, p.functions))
	return maker.Output()
}

// writeHeavy writes the profile that the variable requests.
func writeHeavy(w io.Writer, spec string) error {
	const depth = 40
	var event stacks.Event
	var seed uint64
	var number, functions int
	if _, err := fmt.Sscan(spec, &event, &seed, &number, &functions); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(seed, 1)) // the same profile in every run
	b := stacks.NewBuilder(event)
	var frames []int
	for i := range functions {
		name := fmt.Sprintf("com.example.service.Component%d.method%d", i/10, i)
		frames = append(frames, b.Frame(stacks.Frame{Name: name, Kind: stacks.Compiled, Line: i}))
	}
	thread := b.Thread(stacks.Thread{ID: 1, Name: "worker-1"})
	stack := make([]int, depth)
	for i := range number {
		for j := range stack {
			stack[j] = frames[random.IntN(len(frames))]
		}
		b.Add(stacks.Sample{Stack: stack, Thread: thread, At: time.Duration(i%10) * time.Second, Count: 1, Value: 1e7})
	}
	p := b.Profile()
	p.Engine, p.Interval, p.Duration, p.Bucket = "async-profiler 4.6 perf_events", 1e7, 10*time.Second, time.Second
	return p.WritePprof(w)
}

// heavyProfile is what [heavy] makes.
type heavyProfile struct {
	event             stacks.Event
	seed              uint64
	number, functions int
}

// recordingsWith writes recordings with profiles, one for each hour, by their paths. It makes two at a time.
func recordingsWith(t *testing.T, paths []string, profiles func(hour int) []heavyProfile) {
	t.Helper()
	var makers errgroup.Group
	makers.SetLimit(2)
	for hour, path := range paths {
		makers.Go(func() error { return recordingWith(path, hour, profiles(hour)) })
	}
	if err := makers.Wait(); err != nil {
		t.Fatal(err)
	}
}

func recordingWith(path string, hour int, profiles []heavyProfile) error {
	started := time.Date(2026, 11, 1, hour, 0, 0, 0, time.UTC).Format(time.RFC3339)
	files := map[string][]byte{
		"meta.json":     []byte(strings.Replace(hostileMeta, `"schema":1`, `"schema":1,"started":"`+started+`"`, 1)),
		"samples.jsonl": []byte(`{"t":10,"m":{}}` + "\n"),
	}
	for _, p := range profiles {
		content, err := heavy(p)
		if err != nil {
			return err
		}
		files["profiles/"+string(p.event)+".pb.gz"] = content
	}
	content, err := packed(files)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

// TestProfilesNearTheBound: commands that read recordings with profiles near the bound of their weight stay within the
// memory and time bounds of all.
func TestProfilesNearTheBound(t *testing.T) {
	const most, each = 60_000, 42_000 // stacks of one profile, and of each of three
	kinds := map[string][]heavyProfile{
		"one":   {{stacks.CPU, 0, most, 3000}},
		"three": {{stacks.CPU, 1, each, 3000}, {stacks.Wall, 2, each, 3000}, {stacks.Alloc, 3, each, 3000}},
	}
	for name, profiles := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := []string{filepath.Join(dir, "a.zip"), filepath.Join(dir, "b.zip")}
			recordingsWith(t, p, func(hour int) []heavyProfile {
				list := slices.Clone(profiles)
				for i := range list {
					list[i].seed += uint64(10 * hour)
				}
				return list
			})
			for _, args := range [][]string{ // the first and the last print the text, too
				{"report", p[0], "--html", filepath.Join(dir, "x.html")},
				{"compare", p[0], p[1], "-o", "html"},
				{"compare", p[0], p[1], "--folded", filepath.Join(dir, "x.txt")},
			} {
				o := perfdoctor(t, toRead, args...)
				t.Logf("%s %s: %d MiB, %v", args[0], strings.Join(args[2:], " "), o.peak>>20,
					o.took.Round(100*time.Millisecond))
				if o.code != 0 {
					t.Errorf("%q: exit code %d: %s", args, o.code, o.stderr)
				}
			}
		})
	}
}

// TestTrendOfManyProfiles has as many recordings as a trend takes. The latest 30 have 4,000 stacks each, all of them
// different: a fifth more than the trend keeps (maxPoolCalls of package compare), read after everything else.
func TestTrendOfManyProfiles(t *testing.T) {
	const most, heavy = 500, 30
	dir, paths := t.TempDir(), make([]string, most)
	for i := range paths {
		paths[i] = fmt.Sprintf("%s/%03d.zip", dir, i)
	}
	recordingsWith(t, paths[most-heavy:], func(hour int) []heavyProfile {
		return []heavyProfile{{stacks.CPU, uint64(hour), 4000, 1000}}
	})
	// Recordings of the same time are in the order of their names.
	recordingsWith(t, paths[:1], func(int) []heavyProfile { return []heavyProfile{{stacks.CPU, heavy, 400, 1000}} })
	for _, path := range paths[1 : most-heavy] {
		if err := os.Link(paths[0], path); err != nil {
			t.Fatal(err)
		}
	}
	const toReadAll = time.Minute
	o := perfdoctor(t, toReadAll, "trend", dir)
	t.Logf("%d MiB, %v", o.peak>>20, o.took.Round(100*time.Millisecond))
	if o.code != 0 || !strings.Contains(o.stdout, "500 recordings") || !strings.Contains(o.stdout, "different stacks") {
		t.Errorf("exit code %d, %.600s%s", o.code, o.stdout, o.stderr)
	}
}
