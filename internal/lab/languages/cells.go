package main

import (
	"slices"
	"time"
)

// A fault is what is wrong in the programs.
type fault struct {
	name     string
	verdicts []string // the checks that are right
	function string   // the verdict must name it, as Java spells it; none if no function is to blame
	load     load     // makes it a fault
	twin     load     // lets the same program do well
	also     []string // the checks that are right about the program with and without the fault
}

// A load is what is asked of a program, and what it may use for that.
type load struct {
	clients int           // connections
	think   time.Duration // between an answer and the next request of a connection
	quota   time.Duration // CPU time in a period; none: no limit
}

// A language says how to build and run its program. In both commands, PROGRAMS is the directory of the sources and
// BUILT is the directory of the build output.
type language struct {
	name       string
	build, run []string
	lacks      map[string]string // why the language cannot have a fault, by fault
}

// A cell is a fault in a language.
type cell struct {
	fault    fault
	language language
	none     string // why the language cannot have the fault
}

func faults() []fault {
	return []fault{
		{
			name: "regex", verdicts: []string{"regex-backtracking", "regex-compile"}, function: "matchNames",
			// so that the matching fills a CPU in each language: a request takes 0.7 ms of it in Go, 2 ms in JavaScript
			load: load{clients: 4, think: time.Millisecond},
			twin: load{clients: 1, think: 2 * time.Second},
		},
		{
			name: "lock", verdicts: []string{"lock-contention", "monitor-contention", "lock-held"},
			function: "bookSeat",
			load:     load{clients: 16, think: 40 * time.Millisecond},
			twin:     load{clients: 1, think: 40 * time.Millisecond},
		},
		{
			name: "pool", verdicts: []string{"pool-exhausted", "few-connections"}, function: "fetchPrice",
			// so that a request takes 160 ms: nobody notices less than a tenth of a second
			load: load{clients: 24, think: 80 * time.Millisecond},
			// as many as the pool has connections
			twin: load{clients: 2, think: 80 * time.Millisecond},
		},
		{
			name: "loop", verdicts: []string{"event-loop-blocked", "held-requests"}, function: "retryLater",
			// so that a request takes 190 ms, for the same reason
			load: load{clients: 12, think: 50 * time.Millisecond},
			twin: load{clients: 1, think: 200 * time.Millisecond},
		},
		{
			name: "gc", verdicts: []string{"gc-overhead", "interpreter-gc", "explicit-gc"}, function: "makeOrders",
			load: load{clients: 4, think: 10 * time.Millisecond},
			twin: load{clients: 1, think: 2 * time.Second},
		},
		{
			name: "sized", verdicts: []string{"threads-vs-quota", "cpu-throttled", "cpu-throttled-burst"},
			// The quota is more than one CPU: a single worker with its runtime does not exceed it. A request has 8
			// parts of 4 to 10 ms, so two workers use up a period. Such a long request is worth its own finding.
			load: load{clients: 1, think: 300 * time.Millisecond, quota: period * 5 / 4},
			twin: load{clients: 1, think: 300 * time.Millisecond},
			also: []string{"hot-code", "heavy-crypto"},
		},
	}
}

func languages() []language {
	noCollector := map[string]string{"gc": "it has no collector"}
	return []language{
		{
			name:  "java",
			build: []string{"javac", "-d", "BUILT", "PROGRAMS/Shop.java"},
			run:   []string{"java", "-Xmx64m", "-cp", "BUILT", "Shop"},
		},
		{
			name:  "go",
			build: []string{"go", "build", "-o", "BUILT/shop-go", "PROGRAMS/shop.go"},
			run:   []string{"BUILT/shop-go"},
			lacks: map[string]string{"loop": "its runtime has the loop, which no goroutine can block"},
		},
		{name: "python", run: []string{"python3", "PROGRAMS/shop.py"}},
		{
			name: "node", run: []string{"node", "PROGRAMS/shop.js"},
			lacks: map[string]string{
				"lock": "its one thread needs none",
				"pool": "a callback that waits for a lease is an object, no thread",
			},
		},
		{
			name:  "c++",
			build: []string{"g++", "-O2", "-g", "-pthread", "-o", "BUILT/shop-cpp", "PROGRAMS/shop.cpp"},
			run:   []string{"BUILT/shop-cpp"}, lacks: noCollector,
		},
		{
			name: "rust",
			build: []string{
				"cargo", "build", "--release", "--locked", "--quiet", "--manifest-path",
				"PROGRAMS/rust/Cargo.toml", "--target-dir", "BUILT/rust",
			},
			run: []string{"BUILT/rust/release/shop"}, lacks: noCollector,
		},
	}
}

func cells() (out []cell) {
	for _, f := range faults() {
		for _, l := range languages() {
			out = append(out, cell{f, l, l.lacks[f.name]})
		}
	}
	return slices.Clip(out)
}
