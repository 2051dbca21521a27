package php

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
)

// ErrChanged says that the process ran on while its stack was read, so that the stack came apart.
var ErrChanged = errors.New("the stack changed while it was read")

// A Call is a function that is running.
type Call struct {
	Function string // Shop::cart, usleep; {main} of a file
	File     string // empty for PHP's own functions
	Line     int    // the line that runs; 0 for PHP's own
}

const (
	// maxDepth bounds the calls that are read, the innermost first.
	maxDepth = 128
	// maxText bounds a name, in bytes, and maxKnown the functions that are kept.
	maxText, maxKnown = 1 << 10, 1 << 14
)

// Offsets in a call (zend_execute_data in Zend/zend_compile.h), and how much of one is read.
const (
	callInstruction = 0
	callFunction    = 24
	callCaller      = 48
	callSize        = 56
)

// Offsets in a function (zend_op_array and zend_internal_function in Zend/zend_compile.h). The file's name moved
// between versions: it is looked for from firstText to functionSize.
const (
	functionKind  = 0
	functionName  = 8
	functionClass = 16
	firstText     = 88
	functionSize  = 224
	internal      = 1 // ZEND_INTERNAL_FUNCTION
	ofUser        = 2 // ZEND_USER_FUNCTION
	ofEval        = 4 // ZEND_EVAL_CODE
)

const (
	classNameAt   = 8  // in a class (zend_class_entry in Zend/zend.h)
	textLengthAt  = 16 // in a string (zend_string in Zend/zend_types.h)
	textAt        = 24
	instructionAt = 24 // of the line, in an instruction (zend_op)
)

// key tells functions apart: the memory of a function that is gone is used again.
type key struct{ at, name, class, file uint64 }

// Stack returns the calls of the script that runs, the innermost first; none if no script runs, as in a worker that
// waits for a request. The error is [ErrNoStack] or [ErrChanged].
func (p *Process) Stack() (calls []Call, err error) {
	if p.current == 0 {
		if err := p.find(); err != nil {
			return nil, ErrNoStack
		}
	}
	at, err := p.read.Word(p.current)
	for at != 0 && err == nil && len(calls) < maxDepth {
		var call [callSize]byte
		if err = p.read(at, call[:]); err != nil {
			break
		}
		var c Call
		if f := word64(call[:], callFunction); f != 0 { // 0: a call that PHP makes by itself
			if c, err = p.function(f); err != nil {
				break
			}
			if c.File != "" {
				c.Line = p.line(word64(call[:], callInstruction))
			}
			calls = append(calls, c)
		}
		at = word64(call[:], callCaller)
	}
	if err != nil {
		return nil, ErrChanged
	}
	return calls, nil
}

func word64(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// line reads the line of an instruction; 0 where it cannot be read.
func (p *Process) line(instruction uint64) int {
	var b [4]byte
	if p.read(instruction+instructionAt, b[:]) != nil {
		return 0
	}
	return int(binary.LittleEndian.Uint32(b[:]))
}

// function reads what a function is called, and its file.
func (p *Process) function(at uint64) (c Call, err error) {
	var f [functionSize]byte
	if err := p.read(at, f[:functionClass+word]); err != nil {
		return c, err
	}
	k := key{at: at, name: word64(f[:], functionName), class: word64(f[:], functionClass)}
	switch f[functionKind] {
	case internal:
	case ofUser, ofEval:
		if err := p.read(at, f[:]); err != nil {
			return c, err
		}
		k.file = p.fileOf(f[:])
	default:
		return c, ErrChanged
	}
	if c, ok := p.known[k]; ok {
		return c, nil
	}
	if c, err = p.name(k); err == nil && len(p.known) < maxKnown {
		p.known[k] = c
	}
	return c, err
}

func (p *Process) name(k key) (c Call, err error) {
	c.Function = "{main}"
	if k.name != 0 {
		if c.Function, err = p.text(k.name); err != nil {
			return c, err
		}
	}
	if k.class != 0 {
		at, err := p.read.Word(k.class + classNameAt)
		if err != nil {
			return c, err
		}
		class, err := p.text(at)
		if err != nil {
			return c, err
		}
		c.Function = class + "::" + c.Function
	}
	if k.file != 0 {
		c.File, err = p.text(k.file)
	}
	return c, err
}

// fileOf returns the address of the name of a function's file; 0 if it is not found. The first function that has a
// name beginning with a slash, and a first and a last line behind it, shows where the name is in all functions.
func (p *Process) fileOf(f []byte) uint64 {
	for at := firstText; p.file == 0 && at+2*word <= len(f); at += word {
		first, last := binary.LittleEndian.Uint32(f[at+word:]), binary.LittleEndian.Uint32(f[at+word+4:])
		if first == 0 || last < first || last > 1<<24 {
			continue
		}
		if text, err := p.text(word64(f, at)); err == nil && strings.HasPrefix(text, "/") {
			p.file = at
		}
	}
	if p.file == 0 {
		return 0
	}
	return word64(f, p.file)
}

// text reads a string.
func (p *Process) text(at uint64) (string, error) {
	n, err := p.read.Word(at + textLengthAt)
	if err != nil {
		return "", err
	}
	if n == 0 || n > maxText {
		return "", ErrChanged
	}
	text := make([]byte, n+1)
	if err := p.read(at+textAt, text); err != nil {
		return "", err
	}
	if i := bytes.IndexByte(text, 0); i != int(n) {
		// The name of an anonymous class has a NUL, and its file behind it (zend_generate_anon_class_name).
		if i <= 0 || text[n] != 0 {
			return "", ErrChanged
		}
		return string(text[:i]), nil
	}
	return string(text[:n]), nil
}
