// Package php reads what a PHP process runs: the functions of its scripts, by name, file and line, and PHP's own
// functions that they call. It reads the memory of the process from outside (process_vm_readv(2)), which takes the
// right to trace it. It attaches, stops and writes nothing.
//
// PHP exports the structure that has all of this, executor_globals (Zend/zend_globals.h). Its parts changed little
// from PHP 7.3 to 8.4, except for two places, which are found by their content. The process runs on meanwhile, so each
// frame is checked to be one. Everything has a bound, since whoever owns the process controls its memory.
package php

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

// ErrNone says that a process does not run PHP.
var ErrNone = errors.New("it does not run PHP")

// A Process runs PHP. It is not safe for use by several at once.
type Process struct {
	read    memory.Reader
	modules uint64 // address of module_registry, 0 if it has none
	current uint64 // address of the pointer to the innermost call; 0: not found yet
	globals uint64 // address of executor_globals
	file    int    // offset of the file's name in a function; 0: not found yet
	known   map[key]Call
}

// runtimeFile matches the names of the files that contain PHP: the programs of its kinds of servers, or a library.
var runtimeFile = regexp.MustCompile(`^(?:php(?:-fpm|-cgi|dbg)?[.0-9]*|libphp[.0-9]*\.so|frankenphp|lsphp[.0-9]*)$`)

// Open looks into the process whose directory in /proc is dir. The error is [ErrNone] if the process has no PHP; other
// errors say why it cannot be read.
func Open(dir string, pid int) (*Process, error) {
	files, err := memory.Files(dir, runtimeFile.MatchString)
	if err != nil {
		return nil, err
	}
	// A thread-safe build has the globals of each thread elsewhere, and no such symbol.
	const globals, modules = "executor_globals", "module_registry"
	for _, f := range files {
		at, err := f.Symbols(func(name string) bool { return name == globals || name == modules }, globals)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Base, err)
		}
		if at[globals] == 0 {
			continue
		}
		return &Process{
			read: memory.Of(pid), globals: at[globals], modules: at[modules], known: map[key]Call{},
		}, nil
	}
	return nil, ErrNone
}

const (
	word = 8
	// globalsSize is how much of executor_globals is searched, in bytes: it has 1.7 KiB in PHP 8.2, and the fields
	// that are looked for are in the first half KiB.
	globalsSize = 1 << 10
	// pageSize is the size of a page of the virtual machine's stack, in bytes (ZEND_VM_STACK_PAGE_SIZE in
	// Zend/zend_execute.c).
	pageSize = 256 << 10
)

// ErrNoStack says that no stack of PHP's virtual machine was found: there is none before the first script, as in the
// master of PHP-FPM, or the version is not known.
var ErrNoStack = errors.New("its stack was not found: PHP 7.3 to 8.4 without threads are known")

// find looks up where the pointer to the innermost call is: behind the top, the end, the page and the page size of the
// virtual machine's stack.
func (p *Process) find() error {
	text := make([]byte, globalsSize)
	if err := p.read(p.globals, text); err != nil {
		return err
	}
	at := func(i int) uint64 { return binary.LittleEndian.Uint64(text[i*word:]) }
	for i := 0; i+4 < len(text)/word; i++ {
		top, end, page, size := at(i), at(i+1), at(i+2), at(i+3)
		if size == pageSize && page < top && top <= end && end-page >= pageSize {
			p.current = p.globals + uint64((i+4)*word)
			return nil
		}
	}
	return ErrNoStack
}

// Version returns the version of PHP, such as 8.2.36; "" if there is none. It is the version of the first module
// (zend_module_entry in Zend/zend_modules.h) in the table of modules (a HashTable of Zend/zend_types.h).
func (p *Process) Version() string {
	const table, version, longest = 16, 88, 24
	var text [longest]byte
	buckets, err := p.read.Word(p.modules + table)
	if p.modules == 0 || err != nil {
		return ""
	}
	module, err := p.read.Word(buckets)
	if err != nil {
		return ""
	}
	at, err := p.read.Word(module + version)
	if err != nil || p.read(at, text[:]) != nil {
		return ""
	}
	return string(versionText.Find(text[:]))
}

var versionText = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+`)
