package node_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/node"
)

// waits has three requests and a thousand functions that have ended. One request has a lock, and two wait for it.
const waits = `
class Lock {
  constructor() { this.queue = []; this.held = false; }
  async acquire() {
    if (this.held) await new Promise((done) => this.queue.push(done));
    this.held = true;
  }
}
const lock = new Lock();
async function query() {
  await new Promise((done) => setTimeout(done, 1e6));
}
async function handle() {
  await lock.acquire();
  await query();
}
async function nothing() {
  await null;
}
process.stdin.resume().on('end', () => process.exit(0));
async function main() {
  for (let i = 0; i < 1000; i++) await nothing();
  const all = [handle(), handle(), handle()];
  setTimeout(() => console.log('ready'), 10);
  await Promise.all(all);
}
main();
`

// TestAsync finds the functions that stand at an await, each with the functions that await it.
func TestAsync(t *testing.T) {
	for _, program := range nodes(t) {
		pid, _ := start(t, program, waits)
		p, err := node.Open("/proc/"+strconv.Itoa(pid), pid)
		if err != nil || !p.KnowsAsync() {
			t.Fatalf("%s: %v, async functions are known: %v", program, err, p.KnowsAsync())
		}
		began := time.Now()
		list, whole, err := p.Async()
		if err != nil || !whole {
			t.Fatalf("%s: whole %v, %v", program, whole, err)
		}
		t.Logf("%s: %v", program, time.Since(began))
		var got []string
		for _, a := range list {
			var names []string
			for _, c := range a.Calls {
				names = append(names, fmt.Sprintf("%s:%d", c.Function, c.Line))
			}
			got = append(got, strings.Join(names, " ← "))
		}
		slices.Sort(got)
		want := []string{"acquire:4 ← handle:13", "acquire:4 ← handle:13", "main:21", "query:10 ← handle:13"}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s, -want +got:\n%s", program, d)
		}
	}
}
