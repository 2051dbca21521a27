package conventions

import (
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/go/callgraph"
	"golang.org/x/tools/go/callgraph/cha"
	"golang.org/x/tools/go/callgraph/vta"
	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"
	"golang.org/x/tools/txtar"
)

// doorPackages handle what may be hostile. Each path that they open, or ask the kernel about, is followed to the source
// of its parts.
var doorPackages = []string{
	"internal/host", "internal/jvm", "internal/collect", "internal/collectors", "internal/kernel",
	"internal/daemon/exporter",
}

// door is the package that opens what a target owns.
const door = "internal/host/door"

// targetFiles are the names below /proc/PID behind which a target can put any content, of any size.
var targetFiles = []string{"root", "cwd", "exe", "fd", "cmdline", "environ", "maps", "smaps", "map_files", "mem"}

// userPackages open what the user names, or hosts that they built themselves.
var userPackages = map[string]string{
	"cmd/perfdoctor":            "what its arguments name",
	"internal/cli":              "what flags and arguments name",
	"internal/recording":        "recordings, which flags and arguments name",
	"internal/daemon":           "the directories and files that flags name",
	"internal/lab":              "the hosts, guests and loads of scenarios",
	"internal/report":           "files in the program",
	"internal/input":            "files that a user wrote",
	"internal/recording/metric": "names that stand in the program",
	"internal/dev/testenv":      "what a test needs of its machine",
	"internal/checks":           "files that a user wrote",
}

// knownPaths are functions that may do without the door, and why. Paths are not followed past them.
var knownPaths = map[string]string{
	"(*internal/host.Host).hierarchies":   "mounts of cgroupfs in perfdoctor's own list of mounts",
	"(*internal/host.hierarchy).dirOf":    "a directory of cgroupfs",
	"(*internal/host.Host).Resolve":       "the cgroup that a flag names",
	"(*internal/host.Host).groupPIDs":     "files of cgroupfs, below a directory of it",
	"(*internal/host.Host).runtimeOf":     "the text of the link exe, which is not followed",
	"(*internal/jvm.VM).applyCommandLine": "the text of the link exe, which is not followed",
	"(*internal/jvm.VM).isFrozen":         "files of cgroupfs",
	"internal/jvm.createNamed": "creates a new file (O_EXCL) in a directory that the " +
		"door gave",
	"internal/jvm.newTrigger":                             "a new name in a directory that the door gave",
	"internal/jvm.removeLeftover":                         "a name in a directory that the door gave, by unlinkat",
	"(*internal/jvm.File).Remove":                         "a name in a directory that the door gave, by unlinkat",
	"(*internal/jvm.trigger).remove":                      "a name in a directory that the door gave, by unlinkat",
	"(*internal/kernel/sockdiag.ownerSearch).process":     "the directory fd, which procfs makes",
	"(*internal/kernel/sockdiag.ownerSearch).descriptor":  "the text of a link in fd, which is not followed",
	"internal/kernel/perfevent.fileRoom":                  "the directory fd of perfdoctor itself",
	"internal/collect.enoughFiles":                        "the directory fd of perfdoctor itself",
	"(*internal/host.Host).frozen":                        "files of cgroupfs, below a path without \"..\"",
	"internal/collectors/process.newFileCounter":          "the directory fd of perfdoctor itself",
	"(*internal/collectors/process.fileCounter).list":     "the directory fd, which procfs makes",
	"internal/collectors/process.sizeOf":                  "the directory fd, which procfs makes",
	"internal/collectors/proc.parseInterrupts":            "numbers of interrupts in /proc/interrupts",
	"internal/collectors/proc.sampleDisks":                "names of block devices in /proc/diskstats",
	"(internal/daemon/exporter.WebOptions).guards":        "the file that a flag names",
	"internal/collectors/process.readThread":              "files of threads, in which all is the kernel's",
	"(internal/collectors/network.namespace).gone":        "a directory of a process in procfs",
	"(*internal/kernel/sockdiag.ownerSearch).descriptors": "the directory fd, which procfs makes",
	"internal/jvm/asprof/library.Bundled":                 "a file in the program",
	"(internal/jvm/asprof/library.File).Read":             "a file in the program",
}

// listed are foreign functions that return the names in a directory. Code that could open the directory may open what
// it lists.
var listed = []string{"(io/fs.DirEntry).Name", "(*os.File).Readdirnames", "path/filepath.Glob"}

// pathParameters are what functions of others call a path.
var pathParameters = []string{
	"path", "file", "filename", "fileName", "name", "dir", "root", "fsRoot", "oldname", "newname", "oldpath", "newpath",
	"pathname", "pattern",
}

// notOpeners take a name that is not a file's.
var notOpeners = []string{
	"os.NewFile", "github.com/ianlancetaylor/demangle.Filter", "(*debug/elf.File).Section",
	"golang.org/x/sys/unix.MemfdCreate",
	"golang.org/x/sys/unix.NewIfreq",
}

// notPaths are packages whose names are not paths.
var notPaths = []string{
	"github.com/spf13/pflag", "github.com/spf13/cobra", "net/http", "html/template", "github.com/cilium/ebpf/btf",
	"mime/multipart",
	"github.com/cilium/ebpf", "encoding/xml", "log/slog", "embed",
}

// purePackages make text from text. Their functions that open something have these names.
var (
	purePackages = []string{
		"strings", "strconv", "fmt", "path", "path/filepath", "bytes", "slices", "maps", "cmp",
		"regexp", "encoding/hex",
	}
	walkers = []string{"Glob", "Walk", "WalkDir", "EvalSymlinks"}
)

// TestPaths shows, by types, imports and calls, that no code but the door's leads to a file that a target owns.
func TestPaths(t *testing.T) {
	p := loadPaths(t, "../../..", module, "./cmd/perfdoctor")
	for _, violation := range p.violations() {
		t.Error(violation)
	}
	for name := range knownPaths {
		if !p.used[name] {
			t.Errorf("knownPaths has %s, which no path comes from or through", name)
		}
	}
	if p.calls < 100 {
		t.Errorf("%d calls that open a path: this test looks at the wrong program", p.calls)
	}
}

// TestPathsFire follows the paths of a small program that bypasses the door in every way.
func TestPathsFire(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/paths.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir, want := t.TempDir(), ""
	for _, f := range archive.Files {
		if f.Name == "want" {
			want = string(f.Data)
			continue
		}
		name := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := strings.Join(loadPaths(t, dir, "example.com/paths/", "./cmd").violations(), "\n") + "\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

// A paths follows each path that a program opens back to the source of its parts: through variables, fields, results
// and parameters, from caller to caller.
type paths struct {
	module string
	lines  *token.FileSet
	graph  *callgraph.Graph
	funcs  map[*ssa.Function]bool
	stores map[*types.Var][]ssa.Value // what is stored to a field, anywhere
	given  map[*types.Var]bool        // fields whose address is handed to code of others
	global map[*ssa.Global][]ssa.Value
	closed map[*ssa.Function][]*ssa.MakeClosure
	frames map[frame]*frame
	used   map[string]bool // of knownPaths
	calls  int             // that open a path
}

// An origin is the source of a part of a path.
type origin struct {
	where *ssa.Function
	what  string
}

// A frame is a function as it was called from another, or, without a call, from anywhere.
type frame struct {
	fn   *ssa.Function
	call *ssa.CallCommon
	back *frame
}

// A trace is one walk back along a path.
type trace struct {
	*paths
	out  map[origin]bool
	seen map[visit]bool
}

type visit struct {
	value ssa.Value
	at    frame
}

// loadPaths reads the packages of the module that are linked into the program.
func loadPaths(t *testing.T, dir, module string, program string) *paths {
	t.Helper()
	mode := packages.NeedName | packages.NeedImports | packages.NeedDeps
	list, err := packages.Load(&packages.Config{Dir: dir, Mode: mode}, program)
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	packages.Visit(list, nil, func(p *packages.Package) {
		if strings.HasPrefix(p.PkgPath, module) {
			ours = append(ours, p.PkgPath)
		}
	})
	list, err = packages.Load(&packages.Config{Dir: dir, Mode: packages.LoadSyntax}, ours...)
	if err != nil || packages.PrintErrors(list) > 0 {
		t.Fatalf("loading %d packages: %v", len(ours), err)
	}
	prog, _ := ssautil.Packages(list, ssa.InstantiateGenerics)
	prog.Build()
	funcs := ssautil.AllFunctions(prog)
	p := &paths{
		module: module, lines: prog.Fset, graph: vta.CallGraph(funcs, cha.CallGraph(prog)), funcs: funcs,
		stores: map[*types.Var][]ssa.Value{}, given: map[*types.Var]bool{}, global: map[*ssa.Global][]ssa.Value{},
		closed: map[*ssa.Function][]*ssa.MakeClosure{}, frames: map[frame]*frame{}, used: map[string]bool{},
	}
	for fn := range funcs {
		for _, block := range fn.Blocks {
			for _, instr := range block.Instrs {
				p.note(instr)
			}
		}
	}
	return p
}

// note keeps what an instruction stores where other functions find it.
func (p *paths) note(instr ssa.Instruction) {
	switch in := instr.(type) {
	case *ssa.Store:
		switch at := in.Addr.(type) {
		case *ssa.FieldAddr:
			f := fieldOf(at.X.Type(), at.Field)
			p.stores[f] = append(p.stores[f], in.Val)
		case *ssa.Global:
			p.global[at] = append(p.global[at], in.Val)
		}
	case *ssa.MakeClosure:
		if fn, ok := in.Fn.(*ssa.Function); ok {
			p.closed[fn] = append(p.closed[fn], in)
		}
	case *ssa.FieldAddr:
		for _, use := range *in.Referrers() {
			switch use.(type) {
			case *ssa.Store, *ssa.UnOp, *ssa.FieldAddr, *ssa.IndexAddr, *ssa.DebugRef:
			default:
				p.given[fieldOf(in.X.Type(), in.Field)] = true
			}
		}
	}
}

func fieldOf(t types.Type, i int) *types.Var {
	if ptr, ok := t.Underlying().(*types.Pointer); ok {
		t = ptr.Elem()
	}
	return t.Underlying().(*types.Struct).Field(i).Origin()
}

// violations are the calls outside the door whose path may lead to what a target owns.
func (p *paths) violations() []string {
	bad := map[string]bool{}
	for fn := range p.funcs {
		pkg := p.packageOf(fn)
		if pkg == "" || pkg == door || p.known(fn) {
			continue
		}
		for _, block := range fn.Blocks {
			for _, instr := range block.Instrs {
				if call, ok := instr.(ssa.CallInstruction); ok {
					p.judge(call, fn, pkg, bad)
				}
			}
		}
	}
	var list []string
	for line := range bad {
		list = append(list, line)
	}
	slices.Sort(list)
	return list
}

func (p *paths) judge(call ssa.CallInstruction, fn *ssa.Function, pkg string, bad map[string]bool) {
	args := p.opened(call.Common())
	if len(args) == 0 {
		return
	}
	p.calls++
	if !isBelow(pkg, doorPackages) {
		if !p.ofUser(pkg) {
			bad[pkg+" opens paths: say whose, in doorPackages or userPackages"] = true
		}
		return
	}
	tr := trace{p, map[origin]bool{}, map[visit]bool{}}
	for _, arg := range args {
		tr.origins(arg, &frame{fn: fn})
	}
	for o := range tr.out {
		at := p.lines.Position(call.Pos())
		bad[fmt.Sprintf("%s:%d: %s: its path has %s of %s: leave what a target owns to %s", filepath.Base(at.Filename),
			at.Line,
			p.short(calleeName(call.Common())), o.what, p.short(o.where.String()), door)] = true
	}
}

// opened are the path arguments of a call that leaves the module.
func (p *paths) opened(c *ssa.CallCommon) []ssa.Value {
	fn := c.StaticCallee()
	if fn == nil || fn.Pkg == nil || p.packageOf(fn) != "" || isPure(fn) && !slices.Contains(walkers, fn.Name()) ||
		slices.Contains(notPaths, fn.Pkg.Pkg.Path()) || slices.Contains(notOpeners, fn.String()) {
		return nil
	}
	var args []ssa.Value
	params := fn.Signature.Params()
	for i := range params.Len() {
		v := params.At(i)
		basic, ok := v.Type().Underlying().(*types.Basic)
		if ok && basic.Kind() == types.String && slices.Contains(pathParameters, v.Name()) {
			args = append(args, c.Args[i+len(c.Args)-params.Len()])
		}
	}
	return args
}

// origins finds the source of the parts of a value. Numbers are processes, threads or descriptors.
func (t trace) origins(v ssa.Value, at *frame) {
	if t.seen[visit{v, *at}] || t.known(at.fn) {
		return
	}
	t.seen[visit{v, *at}] = true
	if _, isFunc := v.Type().Underlying().(*types.Signature); isFunc || isNumber(v.Type()) ||
		t.ofUser(t.packageOf(at.fn)) {
		return
	}
	switch v := v.(type) {
	case *ssa.Const:
		t.constant(v, at)
	case *ssa.Parameter:
		t.arguments(v, at)
	case *ssa.FreeVar:
		for _, made := range t.closed[at.fn] {
			t.origins(made.Bindings[slices.Index(at.fn.FreeVars, v)], &frame{fn: made.Parent()})
		}
	case *ssa.Call:
		t.results(v, 0, at)
	case *ssa.Extract:
		if call, ok := v.Tuple.(*ssa.Call); ok {
			t.results(call, v.Index, at)
			return
		}
		t.operands(v.Tuple.(ssa.Instruction), at)
	case *ssa.Field:
		t.field(fieldOf(v.X.Type(), v.Field), at)
	case *ssa.FieldAddr:
		t.field(fieldOf(v.X.Type(), v.Field), at)
	case *ssa.Global:
		for _, val := range t.global[v] {
			t.origins(val, &frame{fn: val.(ssa.Instruction).Parent()})
		}
	case ssa.Instruction: // everything else makes its value of others
		t.operands(v, at)
		t.stored(v.(ssa.Value), at)
	}
}

func (t trace) operands(in ssa.Instruction, at *frame) {
	for _, o := range in.Operands(nil) {
		if *o != nil {
			t.origins(*o, at)
		}
	}
}

func (t trace) constant(v *ssa.Const, at *frame) {
	if v.Value == nil || v.Value.Kind() != constant.String {
		return
	}
	text := constant.StringVal(v.Value)
	if slices.ContainsFunc(strings.Split(text, "/"),
		func(part string) bool { return slices.Contains(targetFiles, part) }) {
		t.out[origin{at.fn, fmt.Sprintf("%q", text)}] = true
	}
}

// stored finds what is stored to an address, or below it.
func (t trace) stored(to ssa.Value, at *frame) {
	switch to.(type) {
	case *ssa.Alloc, *ssa.IndexAddr, *ssa.MakeSlice, *ssa.MakeMap, *ssa.Slice, *ssa.FreeVar, *ssa.FieldAddr:
	default:
		return
	}
	for _, use := range *to.Referrers() {
		switch use := use.(type) {
		case *ssa.Store:
			t.origins(use.Val, at)
		case *ssa.MapUpdate:
			t.origins(use.Key, at)
			t.origins(use.Value, at)
		case *ssa.IndexAddr:
			t.stored(use, at)
		case *ssa.Slice:
			t.stored(use, at)
		case ssa.CallInstruction:
			t.filled(use.Common(), to, at)
		case *ssa.MakeClosure:
			inner := use.Fn.(*ssa.Function)
			t.stored(inner.FreeVars[slices.Index(use.Bindings, to)], &frame{fn: inner})
		}
	}
}

// filled is what a call stored to an address that it was given.
func (t trace) filled(call *ssa.CallCommon, to ssa.Value, at *frame) {
	callee := call.StaticCallee()
	if _, builtin := call.Value.(*ssa.Builtin); builtin || callee != nil && isPure(callee) {
		for _, arg := range call.Args {
			if arg != to {
				t.origins(arg, at)
			}
		}
		return
	}
	if callee != nil && t.packageOf(callee) == "" && slices.Contains(call.Args, to) {
		t.out[origin{at.fn, "what " + calleeName(call) + " wrote, a part"}] = true
	}
}

func (t trace) field(f *types.Var, at *frame) {
	if t.given[f] || len(t.stores[f]) == 0 {
		t.out[origin{at.fn, "the field " + f.Name()}] = true
	}
	for _, val := range t.stores[f] {
		next := at
		if val.Parent() != nil {
			next = &frame{fn: val.Parent()}
		}
		t.origins(val, next)
	}
}

// arguments are what a caller gives for a parameter: the caller of this path, or all.
func (t trace) arguments(v *ssa.Parameter, at *frame) {
	i := slices.Index(at.fn.Params, v)
	if at.call != nil {
		t.argument(i, at.fn, at.call, at.back)
		return
	}
	node := t.graph.Nodes[at.fn]
	if (node == nil || len(node.In) == 0) && at.fn.Synthetic == "" && at.fn.Parent() != nil {
		t.out[origin{at.fn, "a parameter"}] = true // a function that code of others calls
	}
	if node == nil {
		return
	}
	for _, edge := range node.In {
		t.argument(i, at.fn, edge.Site.Common(), &frame{fn: edge.Caller.Func})
	}
}

func (t trace) argument(i int, fn *ssa.Function, call *ssa.CallCommon, at *frame) {
	i -= len(fn.Params) - len(call.Args) // the receiver of an interface's method is no argument
	if i >= 0 && i < len(call.Args) {
		t.origins(call.Args[i], at)
	}
}

// results are the results of a call: what it returns if the code is ours, or its arguments if it makes text of text.
func (t trace) results(call *ssa.Call, index int, at *frame) {
	callees := t.callees(call, at)
	for _, callee := range callees {
		inner := t.enter(call.Common(), callee, at)
		for _, block := range callee.Blocks {
			if ret, ok := block.Instrs[len(block.Instrs)-1].(*ssa.Return); ok && index < len(ret.Results) {
				t.origins(ret.Results[index], inner)
			}
		}
	}
	if len(callees) > 0 {
		return
	}
	callee := call.Call.StaticCallee()
	_, builtin := call.Call.Value.(*ssa.Builtin)
	switch {
	case slices.Contains(listed, calleeName(call.Common())):
	case builtin, callee != nil && isPure(callee):
		for _, arg := range call.Call.Args {
			t.origins(arg, at)
		}
	default:
		t.out[origin{at.fn, "the result of " + calleeName(call.Common())}] = true
	}
}

// callees are the functions of ours that a call may reach.
func (t trace) callees(call *ssa.Call, at *frame) []*ssa.Function {
	if callee := call.Call.StaticCallee(); callee != nil {
		if isPure(callee) || len(callee.Blocks) == 0 {
			return nil
		}
		return []*ssa.Function{callee}
	}
	var list []*ssa.Function
	if node := t.graph.Nodes[at.fn]; node != nil {
		for _, edge := range node.Out {
			if edge.Site == ssa.CallInstruction(call) && len(edge.Callee.Func.Blocks) > 0 {
				list = append(list, edge.Callee.Func)
			}
		}
	}
	return list
}

// enter goes down into a call. A recursion, or a depth that no path has, forgets who called.
func (p *paths) enter(call *ssa.CallCommon, callee *ssa.Function, at *frame) *frame {
	depth := 0
	for f := at; f != nil; f = f.back {
		if depth++; f.fn == callee || depth > 5 {
			return &frame{fn: callee}
		}
	}
	key := frame{callee, call, at}
	if p.frames[key] == nil {
		p.frames[key] = &key
	}
	return p.frames[key]
}

// known says that a function, or the one around it, is in knownPaths.
func (p *paths) known(fn *ssa.Function) bool {
	for fn.Parent() != nil {
		fn = fn.Parent()
	}
	name := p.short(fn.String())
	_, ok := knownPaths[name]
	p.used[name] = p.used[name] || ok
	return ok
}

// packageOf is a function's package within the module, "" for a foreign one.
func (p *paths) packageOf(fn *ssa.Function) string {
	for fn.Parent() != nil {
		fn = fn.Parent()
	}
	if fn.Pkg == nil && fn.Origin() != nil {
		fn = fn.Origin()
	}
	if fn.Pkg == nil {
		return ""
	}
	pkg, ours := strings.CutPrefix(fn.Pkg.Pkg.Path(), p.module)
	if !ours {
		return ""
	}
	return pkg
}

func (p *paths) ofUser(pkg string) bool {
	if isBelow(pkg, doorPackages) {
		return false
	}
	for of := range userPackages {
		if isBelow(pkg, []string{of}) {
			return true
		}
	}
	return false
}

func (p *paths) short(name string) string { return strings.ReplaceAll(name, p.module, "") }

func isBelow(pkg string, list []string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return pkg == p || strings.HasPrefix(pkg, p+"/") })
}

func isNumber(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&(types.IsNumeric|types.IsBoolean) != 0
}

func isPure(fn *ssa.Function) bool {
	if fn.Pkg == nil && fn.Origin() != nil {
		fn = fn.Origin()
	}
	return fn.Pkg != nil && slices.Contains(purePackages, fn.Pkg.Pkg.Path())
}

func calleeName(c *ssa.CallCommon) string {
	if c.Method != nil {
		return c.Method.FullName()
	}
	if fn := c.StaticCallee(); fn != nil {
		return fn.String()
	}
	return c.Value.Name()
}
