package conventions

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// doorPackages handle what may be hostile.
var doorPackages = []string{
	"internal/host", "internal/jvm", "internal/collectors", "internal/jvm/asprof", "internal/kernel/perfevent", "internal/kernel/sockdiag",
	"internal/daemon/exporter",
}

// targetFiles are the names below /proc/PID behind which a target can put any content, of any size.
var targetFiles = []string{"root", "cwd", "cmdline", "environ", "maps", "smaps", "map_files"}

// openers open a path, which the other way to make one, os.Open, does for files of the host in most places.
var openers = []string{
	"unix.Open", "unix.Openat", "unix.Openat2", "unix.Fstatat", "elf.Open", "os.OpenFile", "os.OpenRoot", "syscall.Open",
}

// builders make a path from its parts.
var builders = []string{"Join", "Sprintf", "pidPath", "proc"}

// besidesDoor are the functions that may do without internal/host/door, and why.
var besidesDoor = map[string]string{
	"internal/host/host.go:openRetry":            "files of procfs and sysfs that the kernel keeps short",
	"internal/host/containername.go:nameSeenBy":  "the root of perfdoctor itself, or of process 1",
	"internal/kernel/sockdiag/owners.go:process": "the directory of descriptors, which procfs makes",
	"internal/jvm/place.go:createNamed":          "creates a new file (O_EXCL) in a directory that the door gave",
	"internal/jvm/place.go:createTrigger":        "creates a new file (O_EXCL) in a directory that the door gave",
	"internal/jvm/place.go:clean":                "lists a directory that the door gave",
}

// doorViolations are the places that go to what a target owns by a way of their own.
func doorViolations(files []file) []string {
	var bad []string
	for _, f := range files {
		if f.isTest() || !handlesTargets(f.pkg()) {
			continue
		}
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && besidesDoor[f.path+":"+fn.Name.Name] == "" {
				bad = append(bad, doorViolationsOf(f, fn)...)
			}
		}
	}
	return bad
}

func handlesTargets(pkg string) bool {
	return pkg != "internal/host/door" && slices.ContainsFunc(doorPackages, func(p string) bool { return pkg == p || strings.HasPrefix(pkg, p+"/") })
}

func doorViolationsOf(f file, fn *ast.FuncDecl) []string {
	var bad []string
	ast.Inspect(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name := calledName(call)
		if strings.HasPrefix(name, "door.") {
			return false
		}
		last := name[strings.LastIndexByte(name, '.')+1:]
		if slices.Contains(openers, name) {
			bad = append(bad, f.at(call.Pos())+": "+name+": open what a target owns by internal/host/door")
		}
		if slices.Contains(builders, last) && slices.ContainsFunc(call.Args, namesTargetFile) {
			bad = append(bad, f.at(call.Pos())+": a path to what a target owns: leave it to internal/host/door")
		}
		return true
	})
	return bad
}

// calledName is os.Open, or without a package Open.
func calledName(call *ast.CallExpr) string {
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		if x, ok := fn.X.(*ast.Ident); ok {
			return x.Name + "." + fn.Sel.Name
		}
		return fn.Sel.Name
	}
	return ""
}

func namesTargetFile(e ast.Expr) bool {
	literal, ok := e.(*ast.BasicLit)
	if !ok {
		return false
	}
	text, err := strconv.Unquote(literal.Value)
	isTarget := func(part string) bool { return slices.Contains(targetFiles, part) }
	return err == nil && slices.ContainsFunc(strings.Split(text, "/"), isTarget)
}
