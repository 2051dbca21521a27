package metric

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	q "github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// parseFiles parses the package's source without its tests.
func parseFiles(t *testing.T) []*ast.File {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// declared returns the variables made by one of the makers, and listed the names in the body of a function.
func declared(files []*ast.File, makers ...string) (names []string) {
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, v := range spec.Values {
				call, ok := v.(*ast.CallExpr)
				if !ok {
					continue
				}
				if maker, ok := call.Fun.(*ast.Ident); ok && slices.Contains(makers, maker.Name) {
					names = append(names, spec.Names[i].Name)
				}
			}
			return true
		})
	}
	return names
}

func listed(files []*ast.File, function string) (names []string) {
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Name.Name != function {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				list, ok := n.(*ast.CompositeLit)
				if !ok {
					return true
				}
				for _, e := range list.Elts {
					names = append(names, e.(*ast.Ident).Name)
				}
				return false
			})
		}
	}
	return names
}

func TestAllListsEveryDeclaration(t *testing.T) {
	files := parseFiles(t)
	for function, makers := range map[string][]string{
		"All":             {"counter", "gauge", "overWindow", "info", "sysctl", "netCounter"},
		"NetstatCounters": {"netCounter"},
	} {
		want, got := declared(files, makers...), listed(files, function)
		if len(want) < 10 {
			t.Fatalf("%d declarations are found: the test no longer reads the source", len(want))
		}
		for _, name := range want {
			if !slices.Contains(got, name) {
				t.Errorf("%s does not list %s", function, name)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s lists %d, declared are %d", function, len(got), len(want))
		}
	}
}

func TestDescriptors(t *testing.T) {
	name := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	seen := map[string]bool{}
	for _, m := range All() {
		d := m.Describe()
		if seen[d.Name] {
			t.Errorf("%s is declared twice", d.Name)
		}
		seen[d.Name] = true
		if !name.MatchString(d.Name) || !strings.HasSuffix(d.Help, ".") || d.Source == "" {
			t.Errorf("%s: the name, the help %q or the source %q is not as it should be", d.Name, d.Help, d.Source)
		}
		for i, l := range d.Labels {
			if !name.MatchString(l) || slices.Contains(d.Labels[:i], l) {
				t.Errorf("%s: labels %q", d.Name, d.Labels)
			}
		}
		if strings.HasSuffix(d.Name, "_total") != (d.Kind == KindCounter) ||
			strings.HasSuffix(d.Name, "_info") != (d.Kind == KindInfo) {
			t.Errorf("%s is a %s: only counters end in _total, only infos in _info", d.Name, d.Kind)
		}
		base := strings.TrimSuffix(d.Name, "_total")
		for unit, suffix := range map[q.Unit]string{q.Seconds: "_seconds", q.Bytes: "_bytes", q.Ratio: "_ratio"} {
			inName := strings.HasSuffix(base, suffix) || strings.HasSuffix(strings.TrimSuffix(base, "_limit"), suffix)
			if inName != (d.Unit == unit) && !strings.HasSuffix(base, "_limit_bytes") {
				t.Errorf("%s has unit %q: Prometheus names end in %s for it, and only for it", d.Name, d.Unit, suffix)
			}
		}
		got, ok := ByName(d.Name)
		if !ok || got != m {
			t.Errorf("ByName(%q) is another metric", d.Name)
		}
	}
	if m, ok := ByName("none"); ok || m != nil {
		t.Error("ByName finds a metric that is none")
	}
}

func BenchmarkByName(b *testing.B) {
	for b.Loop() {
		ByName("cgroup_pressure_stalled_seconds_total")
	}
}
