package compare

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// steps are the prefixes of the files' names, in the order of the work.
var steps = []string{"read", "pair", "judge"}

func stepOf(file string) int {
	prefix, _, _ := strings.Cut(strings.TrimSuffix(file, ".go"), "_")
	return slices.Index(steps, prefix)
}

// TestStepsAreReadAlone: no file of a step names a function, type or value of a later one. So it can be read without
// the later ones.
func TestStepsAreReadAlone(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	declared := map[string]string{} // the file of each name
	files := map[string]*ast.File{}
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, "_test.go") || !strings.HasSuffix(name, ".go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = f
		for _, n := range namesOf(f) {
			declared[n] = name
		}
	}
	seen := map[int]int{}
	for name, f := range files {
		step := stepOf(name)
		if step < 0 {
			continue
		}
		seen[step]++
		for _, id := range usedOf(f) {
			if at, ok := declared[id.Name]; ok && stepOf(at) > step {
				t.Errorf("%s: %s is of %s, a later step", fset.Position(id.Pos()), id.Name, at)
			}
		}
	}
	for i, s := range steps {
		if seen[i] < 2 {
			t.Errorf("%d files of the step %s: this test looks for the wrong names", seen[i], s)
		}
	}
}

// namesOf returns what a file declares: names of the package, and methods as ".name".
func namesOf(f *ast.File) []string {
	var out []string
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				out = append(out, "."+d.Name.Name)
			} else {
				out = append(out, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					out = append(out, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						out = append(out, n.Name)
					}
				}
			}
		}
	}
	return out
}

// usedOf returns the names that a file has from elsewhere, and what it selects as ".name".
func usedOf(f *ast.File) []*ast.Ident {
	out := slices.Clone(f.Unresolved)
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			out = append(out, &ast.Ident{NamePos: s.Sel.NamePos, Name: "." + s.Sel.Name})
		}
		return true
	})
	return out
}
