package scenario

import (
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/input/strictyaml"
)

// A scenario whose stack frames or costs differ between JDK releases lists in jdks the other releases that it must
// also run on. Each of them is a separate scenario with its own name: it can be run, fail and be verified alone.

// onJDKName returns the name of the scenario in dir on another JVM.
func onJDKName(dir, jdk string) string { return dir + "-jdk" + jdk }

var jdkSuffix = regexp.MustCompile(`-jdk[0-9]+$`)

func withoutJDK(name string) string { return jdkSuffix.ReplaceAllString(name, "") }

// variants reads only the field jdks. Mistakes in it are found when the whole file is read.
func variants(root *yaml.Node) []OnJDK {
	var file struct {
		JDKs []OnJDK `yaml:"jdks"`
	}
	if root.Kind == yaml.MappingNode {
		(&strictyaml.Decoder{}).Decode(only(root, []string{"jdks"}), &file)
	}
	return file.JDKs
}

// onJDK returns the file of the same scenario on another JVM. It is not in the subset for continuous integration
// unless it says so itself: CI has time for only one of a kind.
func onJDK(root *yaml.Node, dir string, other OnJDK) *yaml.Node {
	fields := slices.DeleteFunc(strictyaml.FieldNames[Scenario](), func(f string) bool {
		return f == "jdks" ||
			f == "ci"
	})
	out := only(root, fields)
	title := "on JDK " + other.JDK
	if i := indexOf(out, "title"); i >= 0 {
		title = out.Content[i+1].Value + " (" + title + ")"
	}
	out = merge(out, field(root.Line, "name", scalar(root.Line, onJDKName(dir, other.JDK))))
	out = merge(out, field(root.Line, "title", scalar(root.Line, title)))
	if i := indexOf(out, "processes"); i >= 0 {
		out.Content[i+1] = programsOn(out.Content[i+1], other.JDK)
	}
	if other.Change != nil && other.Change.Kind == yaml.MappingNode {
		out = merge(out, other.Change)
	}
	return out
}

// programsOn returns the processes with their Java programs on the JVM.
func programsOn(processes *yaml.Node, jdk string) *yaml.Node {
	out := *processes
	out.Content = slices.Clone(processes.Content)
	for i := 0; i+1 < len(out.Content); i += 2 {
		p := out.Content[i+1]
		if p.Kind == yaml.MappingNode && indexOf(p, "java") >= 0 {
			out.Content[i+1] = merge(p, field(p.Line, "java", field(p.Line, "jdk", scalar(p.Line, jdk))))
		}
	}
	return &out
}

func scalar(line int, text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: line}
}

// field returns a mapping of one entry.
func field(line int, name string, value *yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: line, Content: []*yaml.Node{
		scalar(line, name),
		value,
	}}
}

// jdks reports JVMs that do not exist, or that the scenario already runs on.
func (v *validator) jdks(s *Scenario) {
	own := s.java()
	if len(s.JDKs) > 0 && len(own) == 0 {
		v.fail("jdks", "no process has java")
	}
	for _, other := range s.JDKs {
		v.name("jdks", "JDK", other.JDK, jdks())
		if len(own) > 0 && own[0].JDK == other.JDK {
			v.fail("jdks."+other.JDK, "that is the scenario's own")
		}
		if n := other.Change; n != nil && n.Kind != yaml.MappingNode && n.Tag != "!!null" {
			v.fail("jdks."+other.JDK, "want nothing, or the fields that differ")
		}
	}
}
