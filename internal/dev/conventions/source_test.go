package conventions

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// A file is one Go source file.
type file struct {
	path    string // from the root of the repository, with slashes
	syntax  *ast.File
	imports []string
	lines   *token.FileSet // of all files that are read together
}

func (f file) pkg() string  { return path.Dir(f.path) }
func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

func (f file) at(pos token.Pos) string {
	return fmt.Sprintf("%s:%d", f.path, f.lines.Position(pos).Line)
}

// rules are all that is required of Go source.
var rules = map[string]func([]file) []string{
	"imports":    importViolations,
	"init":       initViolations,
	"names":      nameViolations,
	"markers":    markerViolations,
	"exit":       exitViolations,
	"rooms":      roomViolations,
	"firewall":   firewallViolations,
	"memory":     memoryViolations,
	"thresholds": thresholdViolations,
	"built":      builtViolations,
}

func initViolations(files []file) []string {
	var bad []string
	for _, f := range files {
		for _, decl := range f.syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if ok && fn.Recv == nil && fn.Name.Name == "init" && !f.isTest() {
				bad = append(bad, f.at(fn.Pos())+": func init: nothing registers itself; use a plain list")
			}
		}
	}
	return bad
}

// emptyNames say nothing about what is in a package, so everything ends up in it.
var emptyNames = []string{
	"util", "utils", "common", "helper", "helpers", "manager", "managers", "misc", "pkg",
	"shared",
}

func nameViolations(files []file) []string {
	var bad []string
	for _, f := range files {
		for _, part := range append(strings.Split(f.pkg(), "/"), f.syntax.Name.Name) {
			if slices.Contains(emptyNames, part) {
				bad = append(bad, fmt.Sprintf("%s: %q says nothing: name the package for what it holds", f.path, part))
				break
			}
		}
	}
	return bad
}

var marker = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)

func markerViolations(files []file) []string {
	var bad []string
	for _, f := range files {
		for _, group := range f.syntax.Comments {
			for _, comment := range group.List {
				if found := marker.FindString(comment.Text); found != "" {
					bad = append(bad, f.at(comment.Pos())+": "+found+": finish it, or leave it out and write an issue")
				}
			}
		}
	}
	return bad
}

// exitViolations finds calls that end the process without running deferred cleanup.
func exitViolations(files []file) []string {
	var bad []string
	for _, f := range files {
		if f.isTest() || f.syntax.Name.Name == "main" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := selector.X.(*ast.Ident)
			if !ok {
				return true
			}
			call := pkg.Name + "." + selector.Sel.Name
			if call == "os.Exit" || strings.HasPrefix(call, "log.Fatal") {
				bad = append(bad, f.at(n.Pos())+": "+call+": only main exits")
			}
			return true
		})
	}
	return bad
}

// builtViolations finds assignments to the Meta of a recording outside of its package. A recording does not change once
// it is built: windows share its contents with those before and after, and others read them meanwhile.
func builtViolations(files []file) []string {
	var bad []string
	for _, f := range files {
		if f.isTest() || f.pkg() == "internal/recording" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			assign, ok := n.(*ast.AssignStmt)
			if !ok {
				return true
			}
			for _, left := range assign.Lhs {
				if inMeta(left) {
					bad = append(bad, f.at(left.Pos())+": a recording is not changed once it is built: use WithMeta")
				}
			}
			return true
		})
	}
	return bad
}

// inMeta tells that an expression is a field Meta, or something in one.
func inMeta(e ast.Expr) bool {
	for {
		switch x := e.(type) {
		case *ast.SelectorExpr:
			if x.Sel.Name == "Meta" {
				return true
			}
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		default:
			return false
		}
	}
}

// parse reads every Go file of a tree, except those the go command itself does not see.
func parse(t *testing.T, tree fs.FS) []file {
	t.Helper()
	var files []file
	lines := token.NewFileSet()
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if slices.Contains(programsOfExam, name) {
			return fs.SkipDir
		}
		if entry.IsDir() || path.Ext(name) != ".go" {
			return nil
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		f, err := parseFile(lines, name, content)
		files = append(files, f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func parseFile(lines *token.FileSet, name string, content []byte) (file, error) {
	f := file{path: name, lines: lines}
	syntax, err := parser.ParseFile(f.lines, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return file{}, err
	}
	f.syntax = syntax
	for _, spec := range syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return file{}, fmt.Errorf("%s: import %s: %w", name, spec.Path.Value, err)
		}
		f.imports = append(f.imports, imported)
	}
	return f, nil
}

// programsOfExam hold the small programs that start foreign ones: not code of perfdoctor.
var programsOfExam = []string{"exam/cases", "exam/drivers"}

func TestSource(t *testing.T) {
	files := parse(t, os.DirFS("../../.."))
	if len(files) < 5 {
		t.Fatalf("only %d Go files found: this test looks at the wrong directory", len(files))
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for _, violation := range rule(files) {
				t.Error(violation)
			}
		})
	}
}

// TestRulesFire runs each rule on testdata/<rule>.txtar: source files, and the violations in the file "want".
func TestRulesFire(t *testing.T) {
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			archive, err := txtar.ParseFile("testdata/" + name + ".txtar")
			if err != nil {
				t.Fatal(err)
			}
			var files []file
			lines := token.NewFileSet()
			want := ""
			for _, member := range archive.Files {
				if member.Name == "want" {
					want = string(member.Data)
					continue
				}
				f, err := parseFile(lines, member.Name, member.Data)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, f)
			}
			if want == "" {
				t.Fatal("no violation is wanted: this test could not fail")
			}
			got := strings.Join(rule(files), "\n") + "\n"
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}
