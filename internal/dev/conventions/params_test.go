package conventions

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// TestParamsAreDeclared follows each rule through the functions that it calls. A threshold that one of them reads must
// be among the rule's. Pass.Param refuses others, but only when a recording leads there.
func TestParamsAreDeclared(t *testing.T) {
	r := &rulesByType{
		bodies: map[types.Object]ast.Node{}, values: map[types.Object]ast.Expr{}, info: map[ast.Node]*types.Info{},
		files: map[string][]file{}, packages: map[string]*types.Package{},
	}
	for _, f := range parse(t, os.DirFS("../../..")) {
		if strings.HasPrefix(f.path, "internal/") && !f.isTest() {
			r.files[module+f.pkg()] = append(r.files[module+f.pkg()], f)
		}
	}
	for name := range r.files {
		if inRules(file{path: strings.TrimPrefix(name, module) + "/"}) {
			if _, err := r.Import(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	rules := 0
	for obj, value := range r.values {
		literal := checkLiteral(value)
		if literal == nil {
			continue
		}
		rules++
		declared := r.mentioned(field(literal, "Params"), r.info[value])
		run := r.mentioned(field(literal, "Run"), r.info[value])
		for p := range run {
			if !declared[p] {
				t.Errorf("%s reads the threshold %s, which it does not declare", obj.Name(), p.Name())
			}
		}
		for p := range declared {
			if !run[p] {
				t.Errorf("%s declares the threshold %s, which it does not read", obj.Name(), p.Name())
			}
		}
	}
	if rules < 50 {
		t.Errorf("only %d rules: this test looks at the wrong packages", rules)
	}
}

// rulesByType is what the packages of the rules declare, by object. Nothing is known of foreign packages, and nothing
// needs to be: what a rule calls and which thresholds it reads is in this repository.
type rulesByType struct {
	files    map[string][]file // by import path
	packages map[string]*types.Package
	bodies   map[types.Object]ast.Node // of functions
	values   map[types.Object]ast.Expr // of variables
	info     map[ast.Node]*types.Info
}

// Import checks a package's types once.
func (r *rulesByType) Import(name string) (*types.Package, error) {
	if p := r.packages[name]; p != nil {
		return p, nil
	}
	list := r.files[name]
	if len(list) == 0 || !inRules(file{path: strings.TrimPrefix(name, module) + "/"}) {
		r.packages[name] = types.NewPackage(name, path.Base(name))
		r.packages[name].MarkComplete()
		return r.packages[name], nil
	}
	info := &types.Info{
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	config := types.Config{Importer: r, Error: func(error) {}} // unknown code of others is an error to it
	set := token.NewFileSet()                                  // one for all files of a package
	var syntax []*ast.File
	for _, f := range list {
		s, err := parser.ParseFile(set, "../../../"+f.path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		syntax = append(syntax, s)
	}
	r.packages[name], _ = config.Check(name, set, syntax, info)
	for _, f := range syntax {
		for _, d := range f.Decls {
			r.add(info, d)
		}
	}
	return r.packages[name], nil
}

func (r *rulesByType) add(info *types.Info, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Body != nil {
			r.bodies[info.Defs[d.Name]], r.info[d.Body] = d.Body, info
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			v, ok := s.(*ast.ValueSpec)
			if !ok || len(v.Values) != len(v.Names) {
				continue
			}
			for i, n := range v.Names {
				r.values[info.Defs[n]], r.info[v.Values[i]] = v.Values[i], info
			}
		}
	}
}

// mentioned returns the thresholds in an expression and in the functions that it leads to.
func (r *rulesByType) mentioned(x ast.Node, info *types.Info) map[types.Object]bool {
	out, seen := map[types.Object]bool{}, map[types.Object]bool{}
	var walk func(x ast.Node, info *types.Info)
	walk = func(x ast.Node, info *types.Info) {
		ast.Inspect(x, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok || info.Uses[id] == nil || seen[info.Uses[id]] {
				return true
			}
			obj := info.Uses[id]
			seen[obj] = true
			switch value := r.values[obj]; {
			case value != nil && makes(value, "Param"):
				out[obj] = true
			case value != nil && !makes(value, "Check"):
				walk(value, r.info[value])
			case r.bodies[obj] != nil:
				walk(r.bodies[obj], r.info[r.bodies[obj]])
			}
			return true
		})
	}
	if x != nil {
		walk(x, info)
	}
	return out
}

// checkLiteral returns the literal of &check.Check{...}.
func checkLiteral(x ast.Expr) *ast.CompositeLit {
	if !makes(x, "Check") {
		return nil
	}
	return x.(*ast.UnaryExpr).X.(*ast.CompositeLit)
}

func field(l *ast.CompositeLit, name string) ast.Node {
	i := slices.IndexFunc(l.Elts, func(e ast.Expr) bool {
		kv, ok := e.(*ast.KeyValueExpr)
		return ok && lastName(kv.Key) == name
	})
	if i < 0 {
		return nil
	}
	return l.Elts[i].(*ast.KeyValueExpr).Value
}
