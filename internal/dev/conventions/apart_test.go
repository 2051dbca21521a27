package conventions

import (
	"fmt"
	"go/ast"
	"go/types"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// checksDir holds the suite, and below it a package of rules for each stage.
const checksDir = "internal/checks"

// rooms are the packages of rules. Rules are in no other packages: a row of the table of signatures is data.
var rooms = []string{"path", "connections", "kernel", "limits", "runtime", "code"}

// roomViolations keeps rules apart. Each rule is a file that bears its name and refers to nothing in the file of
// another rule, so that a reader of one needs no other. What two rules need of each other becomes evidence or an edge
// in the table of causes. A long rule may have more files, whose names begin with its own. The file named like the room
// lists the rules.
func roomViolations(files []file) []string {
	var bad []string
	for _, room := range rooms {
		var here []file
		for _, f := range files {
			if f.pkg() == path.Join(checksDir, room) && !f.isTest() {
				here = append(here, f)
			}
		}
		bad = append(bad, violationsIn(room, here)...)
	}
	return bad
}

func violationsIn(room string, files []file) []string {
	var names, bad []string
	for _, f := range files {
		for _, rule := range checksIn(f) {
			names = append(names, rule)
			if rule != base(f) {
				bad = append(bad, fmt.Sprintf("%s: the check %s stands in %s.go, one file a rule", f.path, kebab(rule),
					rule))
			}
		}
	}
	owner := map[string]string{} // the rule of each file, by its path
	for _, f := range files {
		owner[f.path] = ruleOf(base(f), names)
		if owner[f.path] == "" && base(f) != room {
			bad = append(bad, f.path+": it belongs to no rule: what several rules read is evidence, what one reads "+
				"stands in its file")
		}
	}
	return append(bad, references(files, owner)...)
}

func base(f file) string    { return strings.TrimSuffix(path.Base(f.path), ".go") }
func kebab(s string) string { return strings.ReplaceAll(s, "_", "-") }

// ruleOf returns the rule with the longest name that a file's name is or begins with: cpu_throttled_burst.go does not
// belong to cpu_throttled.
func ruleOf(name string, rules []string) (best string) {
	for _, r := range rules {
		if (name == r || strings.HasPrefix(name, r+"_")) && len(r) > len(best) {
			best = r
		}
	}
	return best
}

// checksIn returns the names of the checks that a file declares, with underscores.
func checksIn(f file) (names []string) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if selector, ok := literal.Type.(*ast.SelectorExpr); !ok || selector.Sel.Name != "Check" {
			return true
		}
		for _, e := range literal.Elts {
			field, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			key, isName := field.Key.(*ast.Ident)
			value, isText := field.Value.(*ast.BasicLit)
			if isName && isText && key.Name == "Name" {
				if name, err := strconv.Unquote(value.Value); err == nil {
					names = append(names, strings.ReplaceAll(name, "-", "_"))
				}
			}
		}
		return true
	})
	return names
}

// references finds uses of what another rule's file declares: functions, types, their methods and fields, variables,
// constants.
func references(files []file, owner map[string]string) (bad []string) {
	if len(files) == 0 {
		return nil
	}
	lines := files[0].lines
	var syntax []*ast.File
	for _, f := range files {
		syntax = append(syntax, f.syntax)
	}
	// Imports stay empty. References between a room's own files are known without them, and errors about them are not
	// requested.
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	config := types.Config{Importer: empty{}, Error: func(error) {}}
	pkg, _ := config.Check(files[0].pkg(), lines, syntax, info)
	for id, object := range info.Uses {
		if object.Pkg() != pkg || !object.Pos().IsValid() {
			continue
		}
		from, to := lines.Position(id.Pos()), lines.Position(object.Pos())
		if user := owner[from.Filename]; user != "" && owner[to.Filename] != user {
			bad = append(bad, fmt.Sprintf("%s:%d: %s is of %s: a rule refers to no other", from.Filename, from.Line,
				id.Name,
				path.Base(to.Filename)))
		}
	}
	slices.Sort(bad)
	return bad
}

// empty gives empty packages.
type empty struct{}

func (empty) Import(name string) (*types.Package, error) {
	pkg := types.NewPackage(name, path.Base(name))
	pkg.MarkComplete()
	return pkg, nil
}

// TestRulesApart checks that the rows of the import table keep the rooms apart: no room reaches another, and evidence
// reaches none.
func TestRulesApart(t *testing.T) {
	for _, name := range append(slices.Clone(rooms), "signature") {
		room, _ := rowOf(path.Join(checksDir, name))
		if room.pkg != path.Join(checksDir, name) {
			t.Errorf("the room %s has no row of its own", name)
		}
		for _, other := range rooms {
			if other != name && slices.Contains(reachable(room), path.Join(checksDir, other)) {
				t.Errorf("%s can reach %s: rules are apart", room.pkg, other)
			}
		}
	}
	evidence, _ := rowOf("internal/evidence")
	for _, pkg := range reachable(evidence) {
		if strings.HasPrefix(pkg, checksDir) {
			t.Errorf("evidence can reach %s: it knows no rule", pkg)
		}
	}
}
