package node_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/node"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/kernel/perfevent"
)

// script alternates between a method of a class and a regular expression, in a function that is named by the place
// where it is kept. Some lines have characters beyond Latin-1.
const script = `// Ω: two bytes for each character
class Shop {
  cart(n) {
    let total = 0;
    for (let i = 0; i < n; i++) total = (total * 31 + i) % 65537;
    return total;
  }
}
const exp = /^(a+)+$/;
const work = {};
work.turn = function () {
  new Shop().cart(300000);
  exp.test('aaaaaaaaaaaaaaaaab');
};
function outer() {
  for (let i = 0; i < 20; i++) work.turn();
  setTimeout(outer, 0);
}
process.stdin.resume().on('end', () => process.exit(0));
console.log('ready');
setTimeout(outer, 10);
`

// nodes are the Node.js programs of this machine: the one in the PATH, and those in the directories of NODES, a list
// like PATH, with which a developer tries other releases.
func nodes(t *testing.T) []string {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.Tool("node"))
	program, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	out := []string{program}
	for _, dir := range filepath.SplitList(os.Getenv("NODES")) {
		out = append(out, filepath.Join(dir, "node"))
	}
	return out
}

func start(t *testing.T, program, text string) (pid int, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "läuft.js")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	child := testenv.StartChild(t, exec.Command(program, file))
	child.Ready(t)
	return child.PID, file
}

// TestStack takes stacks of every Node of this machine. Names, files and lines are the script's.
func TestStack(t *testing.T) {
	for _, program := range nodes(t) {
		t.Run(program, func(t *testing.T) { testStack(t, program) })
	}
}

func testStack(t *testing.T, program string) {
	pid, file := start(t, program, script)
	p, err := node.Open("/proc/"+strconv.Itoa(pid), pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: V8 %q", program, p.Version)
	s, err := perfevent.OpenStacks(pid, 5*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	innermost, all, outer := map[node.Call]int{}, 0, 0
	var other []node.Call
	for end := time.Now().Add(20 * time.Second); all < 200 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		_, err := s.Read(func(x perfevent.StackSample) {
			calls := p.Stack(x)
			if len(calls) == 0 {
				return
			}
			all++
			innermost[calls[0]]++
			if hasOuter(calls, file) {
				outer++
			} else {
				other = calls
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	cart := node.Call{Function: "cart", File: file, Line: 3}
	if innermost[cart] < all/10 || all < 200 {
		t.Errorf("%d samples, of them %v", all, innermost)
	}
	turn := node.Call{Function: "work.turn", File: file, Line: 11}
	if n := innermost[node.RegExp] + innermost[turn] + innermost[node.Call{Function: "test"}]; n < all/10 {
		t.Errorf("%d samples, of them %d of the regular expression: %v", all, n, innermost)
	}
	if outer < all*9/10 { // the first may be of the program's start, and between two turns is Node's own code
		t.Errorf("%d of %d stacks have the outer functions: %v", outer, all, other)
	}
}

// inlining calls an anonymous function again and again, and that calls a small one.
const inlining = `let total = 0;
function busy(n) {
  for (let i = 0; i < n; i++) total = (total * 31 + i) % 65537;
}
function again() {
  setTimeout(() => {
    for (let i = 0; i < 50; i++) busy(2000);
    again();
  }, 0);
}
process.stdin.resume().on('end', () => process.exit(0));
console.log('ready');
again();
`

// TestInlined: an anonymous function has the name of the one that V8 compiled into it.
func TestInlined(t *testing.T) {
	for _, program := range nodes(t) {
		t.Run(program, func(t *testing.T) {
			pid, file := start(t, program, inlining)
			p, err := node.Open("/proc/"+strconv.Itoa(pid), pid)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(p.Version, "11.") && !strings.HasPrefix(p.Version, "12.") {
				t.Skipf("what V8 %s compiled into a function is not read", p.Version)
			}
			s, err := perfevent.OpenStacks(pid, 5*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			named, seen := 0, map[node.Call]int{}
			for end := time.Now().Add(20 * time.Second); named < 20 && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
				if _, err := s.Read(func(x perfevent.StackSample) {
					for _, c := range p.Stack(x) {
						seen[c]++
						if c.File == file && strings.HasPrefix(c.Function, "(anonymous)+") &&
							strings.Contains(c.Function, "+busy") {
							named++
						}
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
			if named < 20 {
				t.Errorf("samples of %v", seen)
			}
		})
	}
}

// hasOuter tells whether a stack ends as all of the script's do: with the function called, and what Node calls.
func hasOuter(calls []node.Call, file string) bool {
	for i, c := range calls {
		if c.Function == "outer" {
			return c.File == file && c.Line == 15 && i+1 < len(calls) && calls[i+1].Function == "listOnTimeout"
		}
	}
	return false
}

// TestNone: another program does not run V8.
func TestNone(t *testing.T) {
	pid := os.Getpid()
	if _, err := node.Open("/proc/"+strconv.Itoa(pid), pid); !errors.Is(err, node.ErrNone) {
		t.Errorf("error %v", err)
	}
}
