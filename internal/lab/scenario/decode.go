package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// byteUnits are the units of a Bytes value. A longer unit precedes the shorter one that it ends with.
var byteUnits = []struct {
	name string
	size float64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// UnmarshalText reads a size with its unit.
func (b *Bytes) UnmarshalText(text []byte) error {
	for _, unit := range byteUnits {
		number, ok := strings.CutSuffix(string(text), unit.name)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(f > 0 && f*unit.size < 1<<62) {
			break
		}
		*b = Bytes(f * unit.size)
		return nil
	}
	return fmt.Errorf("%q is not a size with its unit, such as 64MiB (B, KiB, MiB, GiB)", text)
}

// merge lays change over base: mappings are merged, null removes, everything else replaces. Neither is modified.
func merge(base, change *yaml.Node) *yaml.Node {
	if base == nil || base.Kind != yaml.MappingNode || change.Kind != yaml.MappingNode {
		return change
	}
	out := *base
	out.Content = slices.Clone(base.Content)
	for i := 0; i+1 < len(change.Content); i += 2 {
		key, value := change.Content[i], change.Content[i+1]
		at := indexOf(&out, key.Value)
		switch {
		case value.Tag == "!!null" && at >= 0:
			out.Content = slices.Delete(out.Content, at, at+2)
		case value.Tag == "!!null": // nothing to remove
		case at >= 0:
			out.Content[at+1] = merge(out.Content[at+1], value)
		default:
			// removes the nulls from a new mapping
			empty := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: value.Line}
			out.Content = append(out.Content, key, merge(empty, value))
		}
	}
	return &out
}

// indexOf returns the index of the key in a mapping, or -1.
func indexOf(mapping *yaml.Node, key string) int {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return i
		}
	}
	return -1
}
