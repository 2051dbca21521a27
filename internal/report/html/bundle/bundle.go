// Package bundle holds the program of the HTML report as a part of this program: charts and flame graphs, built from
// web/ with the libraries of web/package-lock.json.
//
// What is built is no part of the repository: `make bundle` makes it with Node. A build without it compiles and works;
// its HTML reports have all text and tables, and say that charts and flame graphs are missing.
package bundle

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

//go:embed all:built
var embedded embed.FS

// ErrNotBundled says that this build came without the program.
var ErrNotBundled = errors.New("this build of perfdoctor came without the program of the HTML report (make bundle)")

// A Program is what a page runs. Both texts are trusted: they are of this build.
type Program struct {
	Script string // an ECMAScript program, which runs when the page has been read
	Style  string // the style sheets of its libraries
}

// Bundled gives the program. The error is [ErrNotBundled], or tells what is wrong with what was embedded.
func Bundled() (Program, error) {
	script, err := read("page.js")
	if err != nil {
		return Program{}, err
	}
	style, err := read("page.css")
	return Program{Script: script, Style: style}, err
}

// Licenses gives the licences of the libraries in the program, each with its name and version above; empty without the
// program.
func Licenses() (string, error) {
	text, err := read("licenses.txt")
	if errors.Is(err, ErrNotBundled) {
		return "", nil
	}
	return text, err
}

func read(name string) (string, error) {
	text, err := fs.ReadFile(embedded, "built/"+name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrNotBundled
	}
	if err != nil {
		return "", fmt.Errorf("the program of the HTML report: %w", err)
	}
	return string(text), nil
}
