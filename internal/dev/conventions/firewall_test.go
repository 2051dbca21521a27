package conventions

import "go/ast"

// besidesFirewall are the files that may recover from a panic by themselves, and why.
var besidesFirewall = map[string]string{
	"internal/input/firewall/firewall.go": "the firewall",
	"internal/host/netns.go":              "gives the panic on to the goroutine that asked",
}

// firewallViolations are the places where a panic may get lost silently.
func firewallViolations(files []file) []string {
	var bad []string
	for _, f := range files {
		if f.isTest() || besidesFirewall[f.path] != "" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if fn, ok := call.Fun.(*ast.Ident); ok && fn.Name == "recover" {
				bad = append(bad, f.at(n.Pos())+": recover: use internal/input/firewall, which tells of the panic")
			}
			return true
		})
	}
	return bad
}
