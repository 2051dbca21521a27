package jcmd

import (
	"fmt"
	"strconv"
	"strings"
)

// Class is one line of a class histogram: how much of the heap the objects of a class take.
type Class struct {
	Name    string // as in source: java.lang.String, byte[], com.example.Cart$Item[]
	Module  string // java.base@17.0.15; empty for the class path, and before JDK 9
	Objects int64
	Bytes   int64
}

// ParseHistogram reads the output of `GC.class_histogram` (KlassInfoHisto::print_histo_on in
// src/hotspot/share/memory/heapInspection.cpp): largest class first, at most so many lines,
//
//	num     #instances         #bytes  class name (module)
//	-------------------------------------------------------
//	  1:        360123       17285904  org.example.Tracker
//	  2:         81004        9123456  [B (java.base@17.0.15)
func ParseHistogram(text string, most int) ([]Class, error) {
	var out []Class
	for line := range strings.Lines(text) {
		if len(out) == most {
			break
		}
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasSuffix(words[0], ":") {
			continue // head, rule and total
		}
		objects, err1 := strconv.ParseInt(words[1], 10, 64)
		bytes, err2 := strconv.ParseInt(words[2], 10, 64)
		if err1 != nil || err2 != nil || objects < 0 || bytes < 0 {
			return nil, fmt.Errorf("no line of a histogram: %.60q", line)
		}
		c := Class{Name: sourceName(words[3]), Objects: objects, Bytes: bytes}
		if len(words) > 4 {
			c.Module = strings.Trim(words[4], "()")
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no classes: the answer begins with %.60q", text)
	}
	return out, nil
}

// sourceName turns the name of an array class (JVMS 4.3.2) into that of source code.
func sourceName(name string) string {
	element := strings.TrimLeft(name, "[")
	depth := len(name) - len(element)
	if depth == 0 {
		return name
	}
	primitives := map[string]string{
		"B": "byte", "C": "char", "D": "double", "F": "float", "I": "int", "J": "long", "S": "short", "Z": "boolean",
	}
	if of, ok := primitives[element]; ok {
		element = of
	} else {
		element = strings.TrimSuffix(strings.TrimPrefix(element, "L"), ";")
	}
	return element + strings.Repeat("[]", depth)
}
