package page

import (
	"fmt"
	"reflect"
	"strings"
)

// builtins are what every template may call. They mean what they do in text/template, but or and eq take two values.
func builtins() Funcs {
	return Funcs{
		"eq": equal, "not": func(v any) bool { return !truth(reflect.ValueOf(v)) }, "or": either, "len": length,
		"index": element, "printf": fmt.Sprintf, "href": href,
	}
}

// equal compares strings, whole numbers and truths, whatever they are called.
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

// length of what has none is -1: a template that asks is wrong.
func length(v any) int {
	switch x := reflect.ValueOf(v); x.Kind() {
	case reflect.Slice, reflect.String, reflect.Map:
		return x.Len()
	default:
		return -1
	}
}

// element is nil where there is none.
func element(list any, i int) any {
	if x := reflect.ValueOf(list); x.Kind() == reflect.Slice && i >= 0 && i < x.Len() {
		return x.Index(i).Interface()
	}
	return nil
}

// href lets an address be a place in this page or a path of this server, and nothing that names a program or a host.
func href(address string) string {
	if strings.HasPrefix(address, "#") || strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "//") {
		return address
	}
	return "#"
}
