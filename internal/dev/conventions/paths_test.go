package conventions

import (
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/callgraph"
	"golang.org/x/tools/go/callgraph/cha"
	"golang.org/x/tools/go/callgraph/vta"
	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"
)

// A paths follows the paths that a program opens back to where each of their parts comes from: through variables, fields, results
// and parameters, from caller to caller.
type paths struct {
	module string
	graph  *callgraph.Graph
	stores map[*types.Var][]ssa.Value // what is stored to a field, anywhere
	given  map[*types.Var]bool        // fields whose address is handed to code of others, as flags' are
	global map[*ssa.Global][]ssa.Value
	closed map[*ssa.Function][]*ssa.MakeClosure
	frames map[frame]*frame
}

// loadPaths reads the packages that are linked into the programs that the patterns name.
func loadPaths(t *testing.T, dir, module string, patterns ...string) *paths {
	t.Helper()
	list, err := packages.Load(&packages.Config{Dir: dir, Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps}, patterns...)
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
	p := &paths{
		module: module, graph: vta.CallGraph(ssautil.AllFunctions(prog), cha.CallGraph(prog)), stores: map[*types.Var][]ssa.Value{}, given: map[*types.Var]bool{},
		global: map[*ssa.Global][]ssa.Value{}, closed: map[*ssa.Function][]*ssa.MakeClosure{},
		frames: map[frame]*frame{},
	}
	for fn := range ssautil.AllFunctions(prog) {
		for _, block := range fn.Blocks {
			for _, instr := range block.Instrs {
				p.note(instr)
			}
		}
	}
	return p
}

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
		fn := in.Fn.(*ssa.Function)
		p.closed[fn] = append(p.closed[fn], in)
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


// An origin is where a part of a path comes from, and the function in which it does.
type origin struct {
	where *ssa.Function
	what  string // a constant's text in quotes, or what kind of value it is
}

// origins are those of a path. ctx are the calls on the way down, whose arguments parameters stand for.
func (p *paths) origins(v ssa.Value, at *frame, out map[origin]bool, seen map[visit]bool) {
	if seen[visit{v, *at}] {
		return
	}
	seen[visit{v, *at}] = true
	if _, ok := v.Type().Underlying().(*types.Signature); ok {
		return
	}
	if pkg := packageOf(at.fn); !strings.HasPrefix(pkg, p.module) || !handlesTargets(strings.TrimPrefix(pkg, p.module)) {
		out[origin{at.fn, "what "+pkg+" gives"}] = true
		return
	}
	fn := at.fn
	next := func(v ssa.Value) { p.origins(v, at, out, seen) }
	leaf := func(what string) { out[origin{fn, what}] = true }
	if basic, ok := v.Type().Underlying().(*types.Basic); ok && basic.Info()&(types.IsNumeric|types.IsBoolean) != 0 {
		return // a number in a path is a process, a descriptor or a device
	}
	switch v := v.(type) {
	case *ssa.Const:
		if v.Value != nil && v.Value.Kind() == constant.String {
			leaf(fmt.Sprintf("%q", constant.StringVal(v.Value)))
		}
	case *ssa.BinOp:
		next(v.X)
		next(v.Y)
	case *ssa.Phi:
		for _, edge := range v.Edges {
			next(edge)
		}
	case *ssa.MakeInterface:
		next(v.X)
	case *ssa.ChangeType:
		next(v.X)
	case *ssa.ChangeInterface:
		next(v.X)
	case *ssa.Convert:
		next(v.X)
	case *ssa.MultiConvert:
		next(v.X)
	case *ssa.TypeAssert:
		next(v.X)
	case *ssa.Slice:
		next(v.X)
	case *ssa.SliceToArrayPointer:
		next(v.X)
	case *ssa.Extract:
		if call, ok := v.Tuple.(*ssa.Call); ok {
			p.results(call, v.Index, at, out, seen)
			return
		}
		switch tuple := v.Tuple.(type) {
		case *ssa.Next:
			if r, ok := tuple.Iter.(*ssa.Range); ok {
				next(r.X)
			}
		case *ssa.Lookup:
			next(tuple.X)
		case *ssa.TypeAssert:
			next(tuple.X)
		default:
			leaf(fmt.Sprintf("%T", v.Tuple))
		}
	case *ssa.Call:
		p.results(v, 0, at, out, seen)
	case *ssa.Parameter:
		p.arguments(v, at, out, seen)
	case *ssa.FreeVar:
		i := slices.Index(fn.FreeVars, v)
		for _, made := range p.closed[fn] {
			p.origins(made.Bindings[i], &frame{fn: made.Parent()}, out, seen)
		}
	case *ssa.Lookup:
		next(v.X)
	case *ssa.Index:
		next(v.X)
	case *ssa.Field:
		p.field(fieldOf(v.X.Type(), v.Field), at, out, seen)
	case *ssa.FieldAddr:
		p.field(fieldOf(v.X.Type(), v.Field), at, out, seen)
	case *ssa.IndexAddr:
		next(v.X)
		p.stored(v, at, out, seen)
	case *ssa.UnOp:
		next(v.X)
	case *ssa.Alloc:
		p.stored(v, at, out, seen)
	case *ssa.Global:
		if len(p.global[v]) == 0 {
			leaf("variable " + v.String())
		}
		for _, val := range p.global[v] {
			p.origins(val, &frame{fn: val.Parent()}, out, seen)
		}
	case *ssa.MakeSlice, *ssa.MakeMap:
		p.stored(v, at, out, seen)
	default:
		leaf(fmt.Sprintf("%T %s", v, v))
	}
}

// stored are the values put to an address or below it, in this function.
func (p *paths) stored(to ssa.Value, at *frame, out map[origin]bool, seen map[visit]bool) {
	if to.Referrers() == nil {
		return
	}
	for _, use := range *to.Referrers() {
		switch use := use.(type) {
		case *ssa.Store:
			if use.Addr == to {
				p.origins(use.Val, at, out, seen)
			}
		case *ssa.MapUpdate:
			if use.Map == to {
				p.origins(use.Key, at, out, seen)
				p.origins(use.Value, at, out, seen)
			}
		case *ssa.IndexAddr:
			if use.X == to {
				p.stored(use, at, out, seen)
			}
		case *ssa.FieldAddr:
			if use.X == to {
				p.stored(use, at, out, seen)
			}
		case *ssa.Slice:
			p.stored(use, at, out, seen)
		case ssa.CallInstruction:
			common := use.Common()
			if _, ok := common.Value.(*ssa.Builtin); ok || common.StaticCallee() != nil && pure(common.StaticCallee()) {
				for _, arg := range common.Args {
					if arg != to {
						p.origins(arg, at, out, seen)
					}
				}
				continue
			}
			if i := slices.Index(common.Args, to); i >= 0 && p.ours(common.StaticCallee()) == false {
				out[origin{at.fn, "filled by " + calleeName(common)}] = true
			}
		case *ssa.MakeClosure:
			inner := use.Fn.(*ssa.Function)
			for i, b := range use.Bindings {
				if b == to {
					p.stored(inner.FreeVars[i], &frame{fn: inner}, out, seen)
				}
			}
		}
	}
}

func (p *paths) field(f *types.Var, at *frame, out map[origin]bool, seen map[visit]bool) {
	if p.given[f] || len(p.stores[f]) == 0 {
		out[origin{at.fn, "field " + f.Name()}] = true
	}
	for _, val := range p.stores[f] {
		if val.Parent() != nil {
			p.origins(val, &frame{fn: val.Parent()}, out, seen)
		} else {
			p.origins(val, at, out, seen)
		}
	}
}

// arguments are what callers give for a parameter.
func (p *paths) arguments(v *ssa.Parameter, at *frame, out map[origin]bool, seen map[visit]bool) {
	i := slices.Index(at.fn.Params, v)
	if at.call != nil {
		p.argument(i, at.fn, at.call, at.back, out, seen)
		return
	}
	node := p.graph.Nodes[at.fn]
	if node == nil || len(node.In) == 0 {
		out[origin{at.fn, "parameter " + v.Name()}] = true
		return
	}
	for _, edge := range node.In {
		p.argument(i, at.fn, edge.Site.Common(), &frame{fn: edge.Caller.Func}, out, seen)
	}
}

func (p *paths) argument(i int, fn *ssa.Function, call *ssa.CallCommon, at *frame, out map[origin]bool, seen map[visit]bool) {
	i -= len(fn.Params) - len(call.Args) // the receiver of an interface's method is no argument
	if i >= 0 && i < len(call.Args) {
		p.origins(call.Args[i], at, out, seen)
	}
}

// results are those of a call: of what it returns where that is code of ours, of its arguments otherwise.
func (p *paths) results(call *ssa.Call, index int, at *frame, out map[origin]bool, seen map[visit]bool) {
	callee := call.Call.StaticCallee()
	if _, ok := call.Call.Value.(*ssa.Builtin); ok {
		for _, arg := range call.Call.Args {
			p.origins(arg, at, out, seen)
		}
		return
	}
	if callee == nil || !p.ours(callee) || len(callee.Blocks) == 0 {
		if callee == nil || !pure(callee) {
			out[origin{at.fn, "result of " + calleeName(call.Common())}] = true
		}
		if callee != nil && pure(callee) || callee == nil && call.Call.Method == nil {
			for _, arg := range call.Call.Args {
				p.origins(arg, at, out, seen)
			}
		}
		return
	}
	inner := p.enter(call.Common(), callee, at)
	for _, block := range callee.Blocks {
		if ret, ok := block.Instrs[len(block.Instrs)-1].(*ssa.Return); ok && index < len(ret.Results) {
			p.origins(ret.Results[index], inner, out, seen)
		}
	}
}

// enter goes down into a call. A recursion, and what is deeper than any path is made, forgets who called.
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

// A frame is a function as it was called from another, or, without a call, from anywhere.
type frame struct {
	fn   *ssa.Function
	call *ssa.CallCommon
	back *frame
}

type visit struct {
	value ssa.Value
	at    frame
}

func (p *paths) ours(fn *ssa.Function) bool {
	return fn != nil && fn.Pkg != nil && strings.HasPrefix(fn.Pkg.Pkg.Path(), p.module) || fn != nil && fn.Parent() != nil
}

// purePackages make text from text.
var purePackages = []string{"strings", "strconv", "fmt", "path", "path/filepath", "bytes", "slices", "maps", "cmp"}

func pure(fn *ssa.Function) bool {
	pkg := fn.Pkg
	if pkg == nil && fn.Origin() != nil {
		pkg = fn.Origin().Pkg
	}
	return pkg != nil && slices.Contains(purePackages, pkg.Pkg.Path())
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

// pathParameters are what functions of others call a path.
var pathParameters = []string{
	"path", "file", "filename", "fileName", "name", "dir", "dirname", "root", "fsRoot", "oldname", "newname", "oldpath", "newpath", "pattern",
	"dirfd", "pathname", "linkpath",
}

// opens gives the arguments of a call that are paths, where it leaves the module.
func (p *paths) opens(c *ssa.CallCommon) []ssa.Value {
	fn := c.StaticCallee()
	if fn == nil || p.ours(fn) || fn.Pkg == nil || pure(fn) && !slices.Contains(walkers, fn.Name()) {
		return nil
	}
	if slices.Contains(notPaths, fn.Pkg.Pkg.Path()) || slices.Contains(notOpeners, fn.String()) {
		return nil
	}
	var args []ssa.Value
	params := fn.Signature.Params()
	shift := len(c.Args) - params.Len()
	for i := range params.Len() {
		v := params.At(i)
		if basic, ok := v.Type().Underlying().(*types.Basic); ok && basic.Kind() == types.String && slices.Contains(pathParameters, v.Name()) {
			args = append(args, c.Args[i+shift])
		}
	}
	return args
}

var walkers = []string{"Glob", "Walk", "WalkDir", "EvalSymlinks"}
var notPaths = []string{}
var notOpeners = []string{"os.NewFile"}

type violation struct{ fn, opener, what string }

func (p *paths) all() []string {
	lines := map[string]bool{}
	for fn, node := range p.graph.Nodes {
		if fn == nil || !p.ours(fn) {
			continue
		}
		_ = node
		for _, block := range fn.Blocks {
			for _, instr := range block.Instrs {
				call, ok := instr.(ssa.CallInstruction)
				if !ok {
					continue
				}
				for _, arg := range p.opens(call.Common()) {
					out := map[origin]bool{}
					p.origins(arg, &frame{fn: fn}, out, map[visit]bool{})
					for o := range out {
						lines[fmt.Sprintf("%s\t%s\t%s\t%s", fn, calleeName(call.Common()), o.where, o.what)] = true
					}
				}
			}
		}
	}
	return slices.Sorted(func(yield func(string) bool) {
		for l := range lines {
			if !yield(l) {
				return
			}
		}
	})
}
var _ = token.ADD

func packageOf(fn *ssa.Function) string {
	for fn.Parent() != nil {
		fn = fn.Parent()
	}
	if fn.Pkg == nil && fn.Origin() != nil {
		fn = fn.Origin()
	}
	if fn.Pkg == nil {
		return ""
	}
	return fn.Pkg.Pkg.Path()
}
