package ruby_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/ruby"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

const script = `
class Shop
  def total(n)
    sum = 0
    n.times do |i|
      sum = (sum * 31 + i) & 0xffffff
    end
    sum
  end

  def find(all)
    all.include?("none")
  end

  # lines whose places are in blocks behind the first 54 instructions
  def long(x)
    x = x * 3 + 1
    x = x * 3 + 1
    x = x * 3 + 1
    x = x * 3 + 1
    x = x * 3 + 1
    x = x * 3 + 1
    x = x * 3 + 1
    x = x * 3 + 1
    x = x * 3 + 1
    x = x * 3 + 1
    x = x * 3 + 1
    x = x * 3 + 1
    x = x * 3 + 1
    x = x * 3 + 1
    sleep 100
    x
  end
end

shop = Shop.new
case ARGV[0]
when "total" then loop { shop.total(1_000_000) }
when "find"
  all = (1..1_000_000).map(&:to_s)
  loop { shop.find(all) }
when "long" then shop.long(1)
when "thread"
  Thread.new { Queue.new.pop }
  Thread.new { loop { shop.total(1_000_000) } }
  sleep
end
`

// start runs the script and returns its process.
func start(t *testing.T, what string) (pid int, file string) {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.Tool("ruby"))
	file = filepath.Join(t.TempDir(), "shop.rb")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ruby", "--disable-gems", file, what)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // it runs until then
	return cmd.Process.Pid, file
}

// TestStack has methods that compute, and Ruby methods that they call, with their lines.
func TestStack(t *testing.T) {
	for what, want := range map[string][]string{
		"total":  {`^(Shop#)?total:6 (Integer#)?times:0 (Shop#)?total:5 <main>:38 (Kernel#)?loop:0 <main>:38$`},
		"find":   {`^Array#include\?:0 (Shop#)?find:12 <main>:41 (Kernel#)?loop:0 <main>:41$`},
		"long":   {`^Kernel#sleep:0 (Shop#)?long:31 <main>:42$`},
		"thread": {`^Kernel#sleep:0 <main>:46$`, `pop:0 <main>:44$`, `total:6 (Integer#)?times:0 (Shop#)?total:5 <main>:45 (Kernel#)?loop:0 <main>:45$`},
	} {
		pid, file := start(t, what)
		missing := want
		var got string
		deadline := time.Now().Add(10 * time.Second)
		for ; time.Now().Before(deadline) && len(missing) > 0; time.Sleep(10 * time.Millisecond) {
			p, err := ruby.Open("/proc/"+strconv.Itoa(pid), pid)
			if err != nil {
				continue // it starts
			}
			threads, err := p.Threads(func(id int) bool { return id == pid || isThread(pid, id) })
			if err != nil {
				continue
			}
			for _, thread := range threads {
				calls, err := p.Stack(thread)
				if err != nil {
					continue
				}
				got = text(t, calls, file)
				if thread.ID == 0 {
					t.Errorf("%s: the thread in %q has no id", what, got)
				}
				if len(missing) > 0 && regexp.MustCompile(missing[0]).MatchString(got) {
					missing = missing[1:]
				}
			}
			if !strings.HasPrefix(p.Version, "3.") {
				t.Errorf("its version is %q", p.Version)
			}
		}
		if len(missing) > 0 {
			t.Errorf("%s: the last stack is %q, want %q", what, got, missing[0])
		}
	}
}

func isThread(pid, id int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(id))
	return err == nil
}

func text(t *testing.T, calls []ruby.Call, file string) string {
	t.Helper()
	var words []string
	for _, c := range calls {
		words = append(words, c.Function+":"+strconv.Itoa(c.Line))
		if !c.Core && c.File != file {
			t.Errorf("%s is in %q, want %q", c.Function, c.File, file)
		}
	}
	return strings.Join(words, " ")
}

// TestNone: a process without Ruby is told apart from one that cannot be read.
func TestNone(t *testing.T) {
	if _, err := ruby.Open("/proc/self", os.Getpid()); !errors.Is(err, ruby.ErrNone) {
		t.Errorf("this process: %v, want %v", err, ruby.ErrNone)
	}
}
