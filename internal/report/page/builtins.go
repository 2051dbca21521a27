package page

import (
	"fmt"
	"reflect"
	"strings"
)

// builtins are the functions that every template may call. They mean the same as in text/template, but or and eq take
// two values.
func builtins() Funcs {
	return Funcs{
		"eq": equal, "not": func(v any) bool { return !truth(reflect.ValueOf(v)) }, "or": either, "len": length,
		"index": element, "printf": fmt.Sprintf, "href": href,
	}
}

// equal compares strings, whole numbers and truths, whatever their types are called.
func equal(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	return x.IsValid() && y.IsValid() && x.Comparable() && x.CanConvert(y.Type()) && x.Kind() == y.Kind() &&
		x.Convert(y.Type()).Equal(y)
}

func either(a, b any) any {
	if truth(reflect.ValueOf(a)) {
		return a
	}
	return b
}

// length returns -1 for a value that has no length: a template that asks for it is wrong.
func length(v any) int {
	switch x := reflect.ValueOf(v); x.Kind() {
	case reflect.Slice, reflect.String, reflect.Map:
		return x.Len()
	default:
		return -1
	}
}

// element returns nil if there is no such element.
func element(list any, i int) any {
	if x := reflect.ValueOf(list); x.Kind() == reflect.Slice && i >= 0 && i < x.Len() {
		return x.Index(i).Interface()
	}
	return nil
}

// href accepts an address that is a place in this page or a path of this server, but none that names a program or a
// host.
func href(address string) string {
	if strings.HasPrefix(address, "#") || strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "//") {
		return address
	}
	return "#"
}
