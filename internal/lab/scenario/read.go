package scenario

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/input/strictyaml"
)

// FileName is the file in a scenario's directory.
const FileName = "scenario.yaml"

// readmeName is the story beside it.
const readmeName = "README.md"

// ErrInvalid is the kind of every error in a scenario's own files. The message begins with file and line.
var ErrInvalid = errors.New("invalid scenario")

// invalid is an ErrInvalid that says only what is wrong.
type invalid struct{ error }

func (e invalid) Is(target error) bool { return target == ErrInvalid }
func (e invalid) Unwrap() error        { return e.error }

// Names lists the scenarios in the directories of fsys, valid or not, including their variants on other JVMs.
func Names(fsys fs.FS) ([]string, error) {
	dirs, err := directories(fsys)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, dir := range dirs {
		names = append(names, dir)
		data, err := fs.ReadFile(fsys, path.Join(dir, FileName))
		if err != nil {
			return nil, err
		}
		root, err := strictyaml.Parse(FileName, data)
		if err != nil {
			continue // Read says what is wrong with it
		}
		for _, v := range variants(root) {
			names = append(names, onJDKName(dir, v.JDK))
		}
	}
	return names, nil
}

func directories(fsys fs.FS) ([]string, error) {
	found, err := fs.Glob(fsys, "*/"+FileName)
	for i := range found {
		found[i] = path.Dir(found[i])
	}
	return found, err
}

// All reads the scenarios in the directories of fsys, in the order of their names, each followed by its variants on
// other JVMs. checks are the names of all checks.
func All(fsys fs.FS, checks []string) ([]*Scenario, error) {
	dirs, err := directories(fsys)
	if err != nil {
		return nil, err
	}
	var all []*Scenario
	var errs []error
	for _, dir := range dirs {
		list, err := readDir(fsys, dir, checks)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, list...)
	}
	return all, errors.Join(errs...)
}

// Read reads the scenario of that name, strictly: it returns all mistakes in the file as one [ErrInvalid].
func Read(fsys fs.FS, name string, checks []string) (*Scenario, error) {
	dir := name
	if _, err := fs.Stat(fsys, path.Join(dir, FileName)); err != nil {
		dir = withoutJDK(name)
	}
	list, err := readDir(fsys, dir, checks)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, invalid{fmt.Errorf("%s: there is no %s in its jdks", path.Join(dir, FileName), name)}
}

// readDir reads the scenario in the directory dir, followed by its variants on other JVMs.
func readDir(fsys fs.FS, dir string, checks []string) ([]*Scenario, error) {
	file := path.Join(dir, FileName)
	data, err := fs.ReadFile(fsys, file)
	if err != nil {
		return nil, err
	}
	root, err := strictyaml.Parse(file, data)
	if err != nil {
		return nil, invalid{err}
	}
	s, err := fromYAML(validator{file: file, root: root, checks: checks}, dir)
	if err != nil {
		return nil, err
	}
	readme, err := fs.ReadFile(fsys, path.Join(dir, readmeName))
	if err != nil {
		return nil, invalid{fmt.Errorf("%s: a scenario has a story beside it: %w", dir, err)}
	}
	list := []*Scenario{s}
	for _, other := range s.JDKs {
		v := validator{file: file, root: onJDK(root, dir, other), prefix: "jdks." + other.JDK + ": ", checks: checks}
		s, err := fromYAML(v, onJDKName(dir, other.JDK))
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	for _, s := range list {
		s.Dir, s.Readme = dir, string(readme)
	}
	return list, nil
}

// fromYAML decodes and validates the scenario with the name.
func fromYAML(v validator, name string) (*Scenario, error) {
	d := &strictyaml.Decoder{File: v.file}
	s := decode(d, v.root)
	if err := d.Err(); err != nil {
		return nil, invalid{err}
	}
	v.scenario(s, name)
	if len(v.errs) > 0 {
		return nil, invalid{errors.Join(v.errs...)}
	}
	return s, nil
}

// decode reads a scenario and the changed sites of its trials.
func decode(d *strictyaml.Decoder, root *yaml.Node) *Scenario {
	s := &Scenario{}
	d.Decode(root, s)
	if d.Err() != nil {
		return s
	}
	site := only(root, strictyaml.FieldNames[Site]())
	s.site = site
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

// only returns the mapping with just the named keys.
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
