package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A moment is a line of samples.jsonl (docs/recording-format.md).
type moment struct {
	T float64            `json:"t"`
	M map[string][][]any `json:"m"`
}

// repeated writes a recording that repeats the one in a directory the given number of times. Its counters keep
// rising.
func repeated(from, to string, times int) error {
	meta, err := readMeta(from)
	if err != nil {
		return err
	}
	length, ok := meta["duration_seconds"].(float64)
	if !ok {
		return fmt.Errorf("%s: meta.json has no duration_seconds", from)
	}
	length += 1e-3 // keeps the last moment of one repetition apart from the first of the next
	moments, err := readMoments(filepath.Join(from, "samples.jsonl"))
	if err != nil {
		return err
	}
	rises := risesOf(moments)
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	for k := range times {
		for _, m := range moments {
			if err := out.Encode(m.later(float64(k), length, rises)); err != nil {
				return err
			}
		}
	}
	meta["duration_seconds"], meta["asked_seconds"] = length*float64(times), length*float64(times)
	if err := os.CopyFS(filepath.Join(to, "profiles"), os.DirFS(filepath.Join(from, "profiles"))); err != nil {
		return err // only the first repetition has a profile
	}
	return writeRecording(to, meta, map[string][]byte{"samples.jsonl": text.Bytes()})
}

func readMeta(dir string) (meta map[string]any, err error) {
	data, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		return nil, err
	}
	return meta, json.Unmarshal(data, &meta)
}

func readMoments(path string) (out []moment, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20) // a moment of a host with many processes is 1 MB
	for lines.Scan() {
		var m moment
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, m)
	}
	return out, lines.Err()
}

// risesOf returns how much each counter rises from the first to the last moment that has it.
func risesOf(moments []moment) map[string]float64 {
	first, rises := map[string]float64{}, map[string]float64{}
	for _, m := range moments {
		for name, rows := range m.M {
			for _, row := range rows {
				if key, v, ok := counter(name, row); ok {
					if _, known := first[key]; !known {
						first[key] = v
					}
					rises[key] = v - first[key]
				}
			}
		}
	}
	return rises
}

// counter returns the value of a counter. The name of a counter ends with _total.
func counter(name string, row []any) (key string, value float64, ok bool) {
	if !strings.HasSuffix(name, "_total") || len(row) == 0 {
		return "", 0, false
	}
	value, ok = row[len(row)-1].(float64)
	return fmt.Sprint(name, row[:len(row)-1]), value, ok
}

// later returns the moment in the kth repetition.
func (m moment) later(k, length float64, rises map[string]float64) moment {
	out := moment{T: m.T + k*length, M: map[string][][]any{}}
	for name, rows := range m.M {
		moved := make([][]any, len(rows))
		for i, row := range rows {
			moved[i] = row
			if key, v, ok := counter(name, row); ok {
				moved[i] = append(append([]any{}, row[:len(row)-1]...), v+k*rises[key])
			}
		}
		out.M[name] = moved
	}
	return out
}

func writeRecording(dir string, meta any, files map[string][]byte) error {
	data, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	files["meta.json"] = data
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// profiled writes a recording with a CPU profile of n distinct stacks. Like those of a large server, the stacks have
// 20 to 60 calls in 4,000 methods.
func profiled(dir string, n int) error {
	const methods = 4000
	random := rand.New(rand.NewPCG(1, 2))
	b := stacks.NewBuilder(stacks.CPU)
	frames := make([]int, methods)
	for i := range frames {
		frames[i] = b.Frame(stacks.Frame{
			Name: fmt.Sprintf("com.example.shop.module%d.Service%d.process%d", i%23, i%301, i), Line: i % 900,
			Kind: stacks.Compiled,
		})
	}
	thread := b.Thread(stacks.Thread{ID: 1000, Name: "http-nio-8080-exec-1"})
	for i := range n {
		stack := make([]int, 20+random.IntN(41))
		for d := range stack {
			stack[d] = frames[random.IntN(methods)]
		}
		b.Add(stacks.Sample{
			Stack: stack, Thread: thread, At: time.Duration(i%10) * time.Second, Count: 1, Value: 10e6,
		})
	}
	p := b.Profile()
	p.Engine, p.Interval, p.Duration = "made", 10e6, 10*time.Second
	var pprof bytes.Buffer
	if err := p.WritePprof(&pprof); err != nil {
		return err
	}
	meta := map[string]any{
		"schema": 1, "started": "2026-11-20T10:00:00Z", "duration_seconds": 10,
		"target": map[string]any{"kind": "process", "pid": 1},
	}
	samples := fmt.Sprintf(`{"t":0,"m":{"cpu_profile_samples":[[%d]],"procs_running":[[1]]}}`+"\n"+
		`{"t":10,"m":{"procs_running":[[2]]}}`+"\n", n)
	return writeRecording(dir, meta, map[string][]byte{
		"samples.jsonl": []byte(samples), "profiles/cpu.pb.gz": pprof.Bytes(),
	})
}
