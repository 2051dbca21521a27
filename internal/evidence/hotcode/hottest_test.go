package hotcode

import (
	"slices"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// cpuOfText makes the CPU time of folded stacks, one second each.
func cpuOfText(t *testing.T, lines ...string) *CPU {
	t.Helper()
	text := "event: cpu\nengine: test\ninterval: 10000000\nduration: 10s\nlost: 0\n\n"
	for _, l := range lines {
		text += "[main tid=1];" + l + " 100 1000000000\n"
	}
	p, err := stacks.ParseText([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &CPU{Profile: p, Window: 10}
}

func TestHottest(t *testing.T) {
	const java, native = "java.lang.Thread.run_[j];com.acme.Job.run_[j];", "app!main_[n];app!serve_[n];"
	for _, tc := range []struct {
		name                 string
		lines                []string
		want, callee, caller string
		owner                Owner
	}{
		{
			name: "the innermost that has the share",
			lines: []string{
				java + "com.acme.A.all:1_[j];com.acme.A.hot:2_[j];java.util.ArrayList.indexOf:3_[j]",
				java + "com.acme.A.all:1_[j];com.acme.A.hot:2_[j]", java + "com.acme.A.all:1_[j];com.acme.A.hot:2_[j]",
				java + "com.acme.A.all:1_[j];com.acme.A.cold:9_[j]",
			},
			want: "com.acme.A.hot", callee: "", caller: "com.acme.A.all", owner: Application,
		},
		{
			name: "a function whose callees have little each",
			lines: []string{
				native + "app!render_[n];app!a_[n]", native + "app!render_[n];app!b_[n]",
				native + "app!render_[n];app!c_[n]",
				native + "app!store_[n]", native + "app!load_[n]",
			},
			want: "render", callee: "a", caller: "serve", owner: Application,
		},
		{
			name:  "a loop counts by its own time",
			lines: []string{"app!main_[n];app!a_[n]", "app!main_[n];app!b_[n]", "app!main_[n];app!c_[n]"},
		},
		{
			name: "a main that does the work itself",
			lines: []string{
				"app!main_[n];libz.so.1!deflate_[n]", "app!main_[n];libc.so.6!memcpy_[n]", "app!main_[n];app!a_[n]",
			},
			want: "main", callee: "deflate", owner: Application,
		},
		{
			name:  "a library stands in where no caller is known",
			lines: []string{"libz.so.1!deflate_[n]", "libz.so.1!deflate_[n];libc.so.6!memcpy_[n]", "app!main_[n]"},
			want:  "deflate", callee: "", owner: Machine,
		},
		{
			name: "recursion counts once",
			lines: []string{
				native + "app!walk_[n];app!walk_[n];app!walk_[n]", native + "app!walk_[n];app!leaf_[n]",
				native + "app!b_[n]",
			},
			want: "walk", callee: "", caller: "serve", owner: Application,
		},
		{
			name:  "an interpreter is not named",
			lines: []string{"python3.13!_PyEval_EvalFrameDefault_[n]", "python3.13!_PyEval_EvalFrameDefault_[n]"},
		},
		{
			name:  "a function of Python",
			lines: []string{"py::<module>:/srv/a.py_[j];python3.13!_PyEval_EvalFrameDefault_[n];py::fib:/srv/a.py_[j]"},
			want:  "fib (/srv/a.py)", caller: "<module> (/srv/a.py)", owner: Application,
		},
		{
			name: "a main function of Python, by a relative path",
			lines: []string{
				"py::<module>:app.py_[j];py::dumps:/usr/lib/python3.11/json/__init__.py_[j]", "py::<module>:app.py_[j]",
			},
			want: "<module> (app.py)", owner: Application,
		},
		{
			name: "what a library's loop does is not the main function's that started it",
			lines: []string{
				"py::<module>:app.py_[j];py::run:/usr/lib/python3.11/asyncio/runners.py_[j]",
				"py::<module>:app.py_[j];py::run:/usr/lib/python3.11/asyncio/runners.py_[j];" +
					"py::send:/usr/lib/python3.11/asyncio/transports.py_[j]",
			},
		},
		{
			name: "Go's standard library is its caller's",
			lines: []string{
				"app!runtime.goexit_[n];app!main.main_[n];app!example.com/shop.Price_[n];app!strconv.Atoi_[n]",
				"app!runtime.goexit_[n];app!main.main_[n];app!example.com/shop.Price_[n];app!runtime.mallocgc_[n]",
			},
			want: "example.com/shop.Price", callee: "runtime.mallocgc", caller: "main.main", owner: Application,
		},
		{
			name: "what Node's functions call by way of a script is the script's",
			lines: []string{
				"node!node::Parser::OnStreamRead_[n];node!v8::Function::Call_[n];[unknown]_[?];node!Builtins_Add_[n]",
				"node!node::Parser::OnStreamRead_[n];node!Builtins_JSEntry_[n];[unknown]_[?]",
			},
		},
		{
			name: "a function of V8 that a script calls by name",
			lines: []string{
				"node!node::Parser::OnStreamRead_[n];node!Builtins_JSEntry_[n];node!Builtins_ArrayIndexOf_[n]",
				"node!node::Parser::OnStreamRead_[n];node!Builtins_JSEntry_[n];node!Builtins_ArrayIndexOf_[n]",
			},
			want: "Builtins_ArrayIndexOf", caller: "node::Parser::OnStreamRead", owner: Library,
		},
		{
			name: "a function of a stripped program, by where it begins",
			lines: []string{
				"app![unknown 0x10]_[n];app![unknown 0x4f20]_[n];libc.so.6!lfind_[n];app![unknown 0x99]_[n]",
				"app![unknown 0x10]_[n];app![unknown 0x4f20]_[n];libc.so.6!lsearch_[n];app![unknown 0x99 near x]_[n]",
				"app![unknown 0x10]_[n];app![unknown 0x88]_[n]",
			},
			want: "0x4f20 of app", callee: "lfind", owner: Application,
		},
		{
			name: "what a stripped program calls by name comes first",
			lines: []string{
				"app![unknown 0x10]_[n];app![unknown 0x4f20]_[n];libz.so.1!deflate_[n]",
				"app![unknown 0x10]_[n];app![unknown 0x4f20]_[n];libz.so.1!deflate_[n];libz.so.1![unknown 0x5]_[n]",
			},
			want: "deflate", owner: Machine,
		},
		{name: "a library without symbols", lines: []string{"libx.so.1![unknown 0x10]_[n]", "app![unknown]_[n]"}},
		{name: "an interpreter without symbols", lines: []string{"ruby3.1![unknown 0x10]_[n]", "php8![unknown]_[n]"}},
		{name: "the kernel is not named", lines: []string{"vmlinux!do_idle_[k]", "vmlinux!do_idle_[k]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := cpuOfText(t, tc.lines...)
			h, ok := c.Hottest(c.Total() / 2)
			if !ok {
				h = &Hot{}
			}
			if h.Name != tc.want || h.Callee != tc.callee || h.Caller != tc.caller || h.Owner != tc.owner {
				t.Errorf("%q of %d calls %q, called by %q, want %q of %d calls %q, called by %q", h.Name, h.Owner,
					h.Callee, h.Caller, tc.want, tc.owner, tc.callee, tc.caller)
			}
		})
	}
}

// TestCallees: the fewest calls that have half of the time show what a function without a symbol does.
func TestCallees(t *testing.T) {
	for _, tc := range []struct {
		calls []string
		want  []string
	}{
		{[]string{"a", "a", "b"}, []string{"a"}},
		{[]string{"a", "b", "c"}, []string{"a", "b"}},
		{[]string{"a", "", "", ""}, nil},
	} {
		var lines []string
		for _, name := range tc.calls {
			if name != "" {
				name = ";libc.so.6!" + name + "_[n]"
			}
			lines = append(lines, "app![unknown 0x4f20]_[n]"+name)
		}
		c := cpuOfText(t, lines...)
		if h, ok := c.Hottest(c.Total() / 2); !ok || !h.Stripped || !slices.Equal(h.Callees, tc.want) {
			t.Errorf("%q: %+v, want the callees %q", tc.calls, h, tc.want)
		}
	}
}

func TestDark(t *testing.T) {
	c := cpuOfText(t, "[unknown]_[?]", "python3!_PyEval_EvalFrameDefault_[n];python3!list_sort_[n]", "app!main_[n]",
		"app!main_[n];[unknown]_[?]")
	c.Kernel = 7
	if d := c.Dark(); d.Unnamed != 1 || d.Interpreted != 1 || d.Unsampled != 3 || d.Total() != 5 {
		t.Errorf("%+v", d)
	}
}

func TestCut(t *testing.T) {
	c := cpuOfText(t, "[unknown]_[?];app!find_[n]", "app!main_[n];app!find_[n]", "[unknown]_[?]", "vmlinux!read_[k]",
		"[unknown]_[?];app!find_[n];vmlinux!read_[k]", "app![unknown]_[n];app!find_[n]",
		"libc.so.6![thread start]_[n];app![unknown]_[n];app!find_[n]", "app!main_[n];app![unknown]_[n];app!find_[n]")
	if got := c.Cut(); got != 3 {
		t.Errorf("%v s, want 3: three samples of a second have an innermost function, and not their outermost one", got)
	}
}

func TestReadableName(t *testing.T) {
	for name, want := range map[string]string{
		"sort_rows":                         "sort_rows",
		"py::fib:/srv/fib.py":               "fib (/srv/fib.py)",
		"JS:*answer /srv/app.js:12:3":       "answer (/srv/app.js:12:3)",
		"PHP:Shop::cart /srv/my shop.php":   "Shop::cart (/srv/my shop.php)",
		"PHP:usleep php:core":               "usleep (php:core)",
		"RUBY:total /srv/shop.rb":           "total (/srv/shop.rb)",
		"RUBY:Array#include? ruby:core":     "Array#include? (ruby:core)",
		"LazyCompile:~ /srv/app.js:1:1":     "(anonymous) (/srv/app.js:1:1)",
		"com.example.Shop.cart":             "com.example.Shop.cart",
		"LazyCompile:*emit node:events:5:2": "emit (node:events:5:2)",
	} {
		if got := ReadableName(stacks.Frame{Name: name}); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestInterpreterFile(t *testing.T) {
	for _, name := range []string{"python3.13", "libpython3.11.so.1.0", "node", "ruby3.1", "php-fpm8.2", "perl"} {
		if !interpreterFile.MatchString(name) {
			t.Errorf("%s is no interpreter", name)
		}
	}
	for _, name := range []string{"node_exporter", "perlin", "libjvm.so", "rubyist"} {
		if interpreterFile.MatchString(name) {
			t.Errorf("%s is an interpreter", name)
		}
	}
}
