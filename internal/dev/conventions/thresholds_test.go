package conventions

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// inRules tells the source of the rules of thumb, and of what several of them read.
func inRules(f file) bool {
	return (strings.HasPrefix(f.path, "internal/checks/") || strings.HasPrefix(f.path, "internal/evidence/")) &&
		!f.isTest()
}

// declared returns the variables of a type of internal/check that the files declare as variables of packages.
func declared(files []file, kind string) map[string]bool {
	names := map[string]bool{}
	for _, f := range files {
		for _, d := range f.syntax.Decls {
			vars, ok := d.(*ast.GenDecl)
			if !ok || vars.Tok != token.VAR {
				continue
			}
			for _, s := range vars.Specs {
				spec, ok := s.(*ast.ValueSpec)
				if ok && len(spec.Values) == 1 && makes(spec.Values[0], kind) {
					names[spec.Names[0].Name] = true
				}
			}
		}
	}
	return names
}

// makes tells &check.KIND{...}.
func makes(x ast.Expr, kind string) bool {
	address, ok := x.(*ast.UnaryExpr)
	if !ok {
		return false
	}
	literal, ok := address.X.(*ast.CompositeLit)
	if !ok {
		return false
	}
	name, ok := literal.Type.(*ast.SelectorExpr)
	return ok && name.Sel.Name == kind
}

// thresholdViolations keep every threshold one that a user can set. A default that is read is not the value in force,
// and a number in a comparison is in no list.
func thresholdViolations(files []file) []string {
	var bad []string
	params := declared(slices.DeleteFunc(slices.Clone(files), func(f file) bool { return !inRules(f) }), "Param")
	for _, f := range files {
		if !inRules(f) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x := lastName(n.X); params[x] && (n.Sel.Name == "Default" || n.Sel.Name == "Value") {
					bad = append(bad, fmt.Sprintf("%s: %s.%s: read the value in force, with Pass.Param", f.at(n.Pos()),
						x, n.Sel.Name))
				}
			case *ast.BinaryExpr:
				if number := fraction(n); compares(n.Op) && number != "" {
					bad = append(bad, fmt.Sprintf("%s: a comparison with %s: declare a check.Param", f.at(n.Pos()),
						number))
				}
			case *ast.CallExpr:
				if number := fraction(n); number != "" && slices.Contains([]string{"AtLeast", "Above", "Below"},
					lastName(n.Fun)) {
					bad = append(bad, fmt.Sprintf("%s: a comparison with %s: declare a check.Param", f.at(n.Pos()),
						number))
				}
			}
			return true
		})
	}
	return bad
}

func compares(op token.Token) bool {
	return slices.Contains([]token.Token{token.LSS, token.LEQ, token.GTR, token.GEQ}, op)
}

// fraction returns a number with a point in an expression. Numbers without one count things.
func fraction(x ast.Node) (number string) {
	ast.Inspect(x, func(n ast.Node) bool {
		// 1e6 turns units
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.FLOAT && strings.Contains(l.Value, ".") {
			number = l.Value
		}
		return number == ""
	})
	return number
}

// lastName returns "c" for c, b.c and a.b.c.
func lastName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}
