package vm

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// defaultModules returns the modules to load if the kernel has them as modules: the guest has no modprobe that could
// load them on demand. br_netfilter is not among them, because it changes how bridges behave.
func defaultModules() []string {
	return []string{
		"inet_diag", "tcp_diag", "udp_diag", "unix_diag", // for perfdoctor's questions about sockets
		"veth", "bridge", "dummy", // networks
		"nf_conntrack", "nf_conntrack_netlink", "nf_nat", // NAT and its table
		"nf_tables", "nft_ct", "nft_nat", "nft_masq", "nft_redir", "nft_chain_nat", "nft_limit", "nft_log",
		"nft_reject_inet",
		"nft_compat",
		"x_tables", "ip_tables", "iptable_filter", "iptable_nat", "ip6table_filter", "ip6table_nat",
		"xt_conntrack", "xt_MASQUERADE", "xt_comment", "xt_tcpudp",
		"sch_fq", "sch_fq_codel", "sch_netem", "sch_tbf", // delays and losses
		"tcp_bbr",
	}
}

// A module is a file of a kernel's tree, with the dependencies from its .modinfo section.
type module struct {
	name    string
	data    []byte // unpacked
	depends []string
}

// A moduleTree is a folder such as /lib/modules/6.1.0-56-amd64. Dependencies are read from the modules themselves: a
// package that was only unpacked has no modules.dep, because depmod makes that file at installation.
type moduleTree struct {
	files   map[string]string // by name
	builtin map[string]bool
}

// moduleName returns the kernel's own name for a file: foo-bar.ko.xz is foo_bar.
func moduleName(file string) (name string, ok bool) {
	name, rest, ok := strings.Cut(filepath.Base(file), ".ko")
	ok = ok && (rest == "" || rest[0] == '.')
	return strings.ReplaceAll(name, "-", "_"), ok
}

func openModules(dir string) (moduleTree, error) {
	tree := moduleTree{files: map[string]string{}, builtin: map[string]bool{}}
	if dir == "" {
		return tree, nil
	}
	err := filepath.WalkDir(filepath.Join(dir, "kernel"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name, ok := moduleName(path); ok && entry.Type().IsRegular() {
			tree.files[name] = path
		}
		return nil
	})
	if err != nil {
		return tree, fmt.Errorf("modules of the guest's kernel: %w", err)
	}
	list, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return tree, err
	}
	for line := range strings.Lines(string(list)) {
		name, _ := moduleName(strings.TrimSpace(line))
		tree.builtin[name] = true
	}
	return tree, nil
}

// resolve returns the modules in the order of loading. A wanted module that this kernel does not have is left out; a
// missing required one is an error.
func (t moduleTree) resolve(wanted, required []string) ([]module, error) {
	r := resolver{tree: t, seen: map[string]bool{}}
	for _, name := range wanted {
		if _, ok := t.files[name]; ok {
			r.visit(name)
		}
	}
	for _, name := range required {
		r.visit(strings.ReplaceAll(name, "-", "_"))
	}
	return r.order, r.err
}

type resolver struct {
	tree  moduleTree
	seen  map[string]bool
	order []module
	err   error
}

func (r *resolver) visit(name string) {
	if r.err != nil || r.seen[name] || r.tree.builtin[name] {
		return
	}
	r.seen[name] = true
	path, ok := r.tree.files[name]
	if !ok {
		r.err = fmt.Errorf("the guest's kernel has no module %s (%d others known): give its folder of modules", name,
			len(r.tree.files))
		return
	}
	m, err := readModule(path)
	if err != nil {
		r.err = err
		return
	}
	for _, other := range m.depends {
		r.visit(other)
	}
	r.order = append(r.order, m)
}

func readModule(path string) (module, error) {
	name, _ := moduleName(path)
	data, err := os.ReadFile(path)
	if err == nil && !begins(data, elf.ELFMAG) {
		data, err = decompress(data)
	}
	if err != nil {
		return module{}, fmt.Errorf("module %s: %w", path, err)
	}
	depends, err := dependencies(data)
	if err != nil {
		return module{}, fmt.Errorf("module %s: %w", path, err)
	}
	return module{name, data, depends}, nil
}

// dependencies reads "depends=a,b". It ignores softdep entries: the module loads without them
// (include/linux/module.h).
func dependencies(data []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no .modinfo section: not a kernel module")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ","), nil
		}
	}
	return nil, nil
}
