package scenario

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/strictyaml"
)

// FileName is the file in a scenario's directory.
const FileName = "scenario.yaml"

// readmeName is the story beside it.
const readmeName = "README.md"

// ErrInvalid is the kind of every error in a scenario's own files; its message begins with file and line.
var ErrInvalid = errors.New("invalid scenario")

// invalid is an ErrInvalid that says only what is wrong.
type invalid struct{ error }

func (e invalid) Is(target error) bool { return target == ErrInvalid }
func (e invalid) Unwrap() error        { return e.error }

// All reads the scenarios in the directories of fsys, in the order of their names. checks are the names of the checks there
// are.
func All(fsys fs.FS, checks []string) ([]*Scenario, error) {
	names, err := fs.Glob(fsys, "*/"+FileName)
	if err != nil {
		return nil, err
	}
	var all []*Scenario
	var errs []error
	for _, name := range names {
		s, err := Read(fsys, path.Dir(name), checks)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, s)
	}
	return all, errors.Join(errs...)
}

// Read reads the scenario in the directory dir of fsys, strictly: all mistakes in it are one error, which is [ErrInvalid].
func Read(fsys fs.FS, dir string, checks []string) (*Scenario, error) {
	file := path.Join(dir, FileName)
	data, err := fs.ReadFile(fsys, file)
	if err != nil {
		return nil, err
	}
	s, root, err := parse(file, data)
	if err != nil {
		return nil, err
	}
	readme, err := fs.ReadFile(fsys, path.Join(dir, readmeName))
	if err != nil {
		return nil, invalid{fmt.Errorf("%s: a scenario has a story beside it: %w", dir, err)}
	}
	s.Readme = string(readme)
	v := validator{file: file, root: root, checks: checks}
	v.scenario(s, path.Base(dir))
	if len(v.errs) > 0 {
		return nil, invalid{errors.Join(v.errs...)}
	}
	return s, nil
}

func parse(file string, data []byte) (*Scenario, *yaml.Node, error) {
	root, err := strictyaml.Parse(file, data)
	if err != nil {
		return nil, nil, invalid{err}
	}
	d := &strictyaml.Decoder{File: file}
	s := decode(d, root)
	if err := d.Err(); err != nil {
		return nil, nil, invalid{err}
	}
	return s, root, nil
}

// decode reads a scenario and the changed sites of its trials.
func decode(d *strictyaml.Decoder, root *yaml.Node) *Scenario {
	s := &Scenario{}
	d.Decode(root, s)
	if d.Err() != nil {
		return s
	}
	site := only(root, strictyaml.FieldNames[Site]())
	for _, trials := range [][]Trial{s.Cures, s.Placebos} {
		for i := range trials {
			t := &trials[i]
			t.merged = site
			if t.Change != nil {
				t.merged = merge(site, t.Change)
			}
			d.Decode(t.merged, &t.Site)
		}
	}
	return s
}

// only gives the mapping with the named keys alone.
func only(mapping *yaml.Node, keys []string) *yaml.Node {
	out := *mapping
	out.Content = nil
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if slices.Contains(keys, mapping.Content[i].Value) {
			out.Content = append(out.Content, mapping.Content[i], mapping.Content[i+1])
		}
	}
	return &out
}
