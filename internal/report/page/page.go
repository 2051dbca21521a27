// Package page fills the HTML templates of reports and of the exporter's pages. It knows the part of html/template
// that they use, and it calls no methods. text/template looks methods up by name, so Go's linker has to keep every
// method of every type of the program, which is a seventh of it (docs/decisions/0076-pages-without-methods.md).
//
// It escapes for text and for quoted attributes, and knows no other place. A template must not have an action in a
// script, a style sheet, an attribute without quotes, or an attribute whose value is a program; an address goes
// through href. The tests of each template compare it with html/template, byte by byte, with hostile names in every
// place.
package page

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"text/template/parse"
)

// Funcs are the functions that a template may call by name, beside eq, not, or, len, index, printf and href. Each
// returns one value.
type Funcs map[string]any

// Trusted is our own markup or style sheet, which is written as it stands.
type Trusted string

// A Template is a parsed file of definitions.
type Template struct {
	trees map[string]*parse.Tree
	funcs Funcs
}

// Parse reads a template. Text outside of definitions has the name "page".
func Parse(text string, funcs Funcs) (*Template, error) {
	all := builtins()
	maps.Copy(all, funcs)
	trees, err := parse.Parse("page", text, "", "", all)
	return &Template{trees: trees, funcs: all}, err
}

// Must is for templates that are part of the program.
func Must(t *Template, err error) *Template {
	if err != nil {
		panic(err)
	}
	return t
}

// Text fills a definition. A mismatch between template and data is an error with the place in the template.
func (t *Template) Text(name string, data any) (string, error) {
	var out bytes.Buffer
	err := t.fill(&out, name, reflect.ValueOf(data), 0)
	return out.String(), err
}

// maxDepth bounds definitions that use each other: a report is four deep.
const maxDepth = 20

func (t *Template) fill(out *bytes.Buffer, name string, dot reflect.Value, depth int) error {
	tree := t.trees[name]
	if tree == nil || depth > maxDepth {
		return fmt.Errorf("template %q: not defined, or it uses itself", name)
	}
	f := &filler{Template: t, out: out, depth: depth, vars: []variable{{"$", dot}}}
	if err := f.walk(dot, tree.Root); err != nil {
		return fmt.Errorf("template %q: %w", name, err)
	}
	return nil
}

type variable struct {
	name  string
	value reflect.Value
}

type filler struct {
	*Template
	out   *bytes.Buffer
	depth int
	vars  []variable
}

func (f *filler) walk(dot reflect.Value, n parse.Node) error {
	switch n := n.(type) {
	case *parse.ListNode:
		return f.list(dot, n)
	case *parse.TextNode:
		f.out.Write(n.Text)
		return nil
	case *parse.ActionNode:
		v, err := f.pipe(dot, n.Pipe)
		if err != nil || len(n.Pipe.Decl) > 0 {
			return err
		}
		f.write(v)
		return nil
	case *parse.IfNode:
		return f.branch(dot, &n.BranchNode)
	case *parse.WithNode:
		return f.branch(dot, &n.BranchNode)
	case *parse.RangeNode:
		return f.each(dot, n)
	case *parse.TemplateNode:
		v, err := f.pipe(dot, n.Pipe)
		if err != nil {
			return err
		}
		return f.fill(f.out, n.Name, v, f.depth+1)
	}
	return fmt.Errorf("%s: not known here", n)
}

func (f *filler) list(dot reflect.Value, list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	for _, n := range list.Nodes {
		if err := f.walk(dot, n); err != nil {
			return err
		}
	}
	return nil
}

// branch is an if or a with; the scope of its variables ends with it.
func (f *filler) branch(dot reflect.Value, n *parse.BranchNode) error {
	defer f.forget(len(f.vars))
	v, err := f.pipe(dot, n.Pipe)
	switch {
	case err != nil:
		return err
	case !truth(v):
		return f.list(dot, n.ElseList)
	case n.NodeType == parse.NodeWith:
		dot = v
	}
	return f.list(dot, n.List)
}

func (f *filler) forget(n int) { f.vars = f.vars[:n] }

func (f *filler) each(dot reflect.Value, n *parse.RangeNode) error {
	defer f.forget(len(f.vars))
	v, err := f.pipe(dot, n.Pipe)
	if err != nil {
		return err
	}
	list := indirect(v)
	if list.Kind() != reflect.Slice {
		return fmt.Errorf("%s: a range over %s", n.Pipe, list.Kind())
	}
	if list.Len() == 0 {
		return f.list(dot, n.ElseList)
	}
	outside := len(f.vars)
	for i := range list.Len() {
		f.forget(outside)
		f.declare(n.Pipe.Decl, reflect.ValueOf(i), list.Index(i))
		if err := f.list(list.Index(i), n.List); err != nil {
			return err
		}
	}
	return nil
}

// declare sets a range's variables: the last is the element, and one before it the place.
func (f *filler) declare(decl []*parse.VariableNode, values ...reflect.Value) {
	for i, d := range decl {
		f.vars = append(f.vars, variable{d.Ident[0], values[len(values)-len(decl)+i]})
	}
}

func (f *filler) pipe(dot reflect.Value, p *parse.PipeNode) (reflect.Value, error) {
	if p == nil {
		return reflect.Value{}, nil // {{template "x"}} has no data
	}
	if len(p.Cmds) != 1 || p.IsAssign {
		return reflect.Value{}, fmt.Errorf("%s: one command, which assigns nothing, is all that is known here", p)
	}
	v, err := f.command(dot, p.Cmds[0])
	if err != nil {
		return reflect.Value{}, err
	}
	if len(p.Decl) == 1 {
		f.declare(p.Decl, v)
	}
	return v, nil
}

func (f *filler) command(dot reflect.Value, c *parse.CommandNode) (reflect.Value, error) {
	name, ok := c.Args[0].(*parse.IdentifierNode)
	if !ok {
		if len(c.Args) > 1 {
			return reflect.Value{}, fmt.Errorf("%s: no method is called here", c)
		}
		return f.operand(dot, c.Args[0])
	}
	var args []reflect.Value
	for _, n := range c.Args[1:] {
		v, err := f.operand(dot, n)
		if err != nil {
			return reflect.Value{}, err
		}
		args = append(args, v)
	}
	v, err := f.call(name.Ident, args)
	if err != nil {
		return reflect.Value{}, fmt.Errorf("%s: %w", c, err)
	}
	return v, nil
}

// operand evaluates a node that can be an argument.
func (f *filler) operand(dot reflect.Value, n parse.Node) (reflect.Value, error) {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.FieldNode:
		return fields(dot, n.Ident)
	case *parse.VariableNode:
		for i := len(f.vars) - 1; i >= 0; i-- {
			if f.vars[i].name == n.Ident[0] {
				return fields(f.vars[i].value, n.Ident[1:])
			}
		}
	case *parse.ChainNode:
		v, err := f.operand(dot, n.Node)
		if err != nil {
			return v, err
		}
		return fields(v, n.Field)
	case *parse.PipeNode:
		return f.pipe(dot, n)
	case *parse.IdentifierNode:
		return f.call(n.Ident, nil)
	case *parse.StringNode:
		return reflect.ValueOf(n.Text), nil
	case *parse.BoolNode:
		return reflect.ValueOf(n.True), nil
	case *parse.NumberNode:
		if n.IsInt {
			return reflect.ValueOf(int(n.Int64)), nil
		}
	}
	return reflect.Value{}, fmt.Errorf("%s: not known here", n)
}

// fields follows a path of exported fields.
func fields(v reflect.Value, path []string) (reflect.Value, error) {
	for _, name := range path {
		if v = indirect(v); v.Kind() != reflect.Struct {
			return reflect.Value{}, fmt.Errorf(".%s: there is no structure", name)
		}
		field, ok := v.Type().FieldByName(name)
		if !ok || !field.IsExported() {
			return reflect.Value{}, fmt.Errorf(".%s: no exported field of %s; a method needs a function", name,
				v.Type())
		}
		var err error
		if v, err = v.FieldByIndexErr(field.Index); err != nil {
			return reflect.Value{}, err
		}
	}
	return v, nil
}

// indirect follows pointers and interfaces. For nil it returns a value that is not valid.
func indirect(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v
}

// truth reports whether a value is not empty, as in text/template.
func truth(v reflect.Value) bool {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Invalid:
		return false
	case reflect.Slice, reflect.Map, reflect.String:
		return v.Len() > 0
	case reflect.Struct:
		return true
	default:
		return !v.IsZero()
	}
}

// call calls a function. Its arguments must have its parameters' types: our own functions and templates can disagree
// only in a test, and not because of what a target named itself.
func (f *filler) call(name string, args []reflect.Value) (reflect.Value, error) {
	fn, ok := f.funcs[name]
	v := reflect.ValueOf(fn)
	if !ok || v.Kind() != reflect.Func || v.Type().NumOut() != 1 {
		return reflect.Value{}, errors.New("no function with one result")
	}
	if n := v.Type().NumIn(); len(args) != n && !v.Type().IsVariadic() || len(args) < n-1 {
		return reflect.Value{}, fmt.Errorf("%d arguments", len(args))
	}
	for i, a := range args {
		if args[i], ok = fitting(a, parameter(v.Type(), i)); !ok {
			return reflect.Value{}, fmt.Errorf("argument %d is no %s", i+1, parameter(v.Type(), i))
		}
	}
	return v.Call(args)[0], nil
}

// fitting returns an argument as its parameter wants it: the value itself, what it points to, or its address.
func fitting(a reflect.Value, to reflect.Type) (reflect.Value, bool) {
	if a.IsValid() && !a.Type().AssignableTo(to) {
		if a.CanAddr() && a.Addr().Type().AssignableTo(to) {
			return a.Addr(), true
		}
		a = indirect(a)
	}
	return a, a.IsValid() && a.Type().AssignableTo(to)
}

func parameter(fn reflect.Type, i int) reflect.Type {
	if last := fn.NumIn() - 1; fn.IsVariadic() && i >= last {
		return fn.In(last).Elem()
	}
	return fn.In(i)
}

// escaper is html/template's table for text and quoted attributes.
var escaper = strings.NewReplacer(
	"\x00", "\uFFFD", `"`, "&#34;", "&", "&amp;", "'", "&#39;", "+", "&#43;", "<", "&lt;", ">", "&gt;",
)

func (f *filler) write(v reflect.Value) {
	if !v.IsValid() {
		return // nil prints nothing
	}
	switch v := v.Interface().(type) {
	case Trusted:
		f.out.WriteString(string(v))
	case fmt.Stringer, error:
		f.out.WriteString(escaper.Replace(fmt.Sprint(v)))
	default:
		if inner := indirect(reflect.ValueOf(v)); inner.IsValid() {
			f.out.WriteString(escaper.Replace(fmt.Sprint(inner.Interface())))
		}
	}
}
