package redact

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// Path returns the pseudonym of the path of a file or a control group, name by name, so that what lay below the same
// directory still does. Names that come from the kernel, the file system hierarchy or a container engine stay, and so
// do the ends that say what a file is.
func (n *Names) Path(s string) string { return n.path(s, false) }

// Program returns the pseudonym of the path of a program or library: its own name stays.
func (n *Names) Program(s string) string { return n.path(s, true) }

func (n *Names) path(s string, keepLast bool) string {
	if strings.HasPrefix(s, "/proc/") || strings.HasPrefix(s, "/sys/") && !strings.HasPrefix(s, "/sys/fs/cgroup/") {
		return n.kernelPath(s)
	}
	names := strings.Split(s, "/")
	public := publicFrom(names)
	for i, name := range names {
		if i < public && (!keepLast || i < len(names)-1) {
			names[i] = n.component(name)
		}
	}
	return strings.Join(names, "/")
}

var (
	// the directory of Python's standard library
	pythonLibrary = regexp.MustCompile(`^python[23]\.[0-9]+$`)
	// packages that rules know by their files
	publicPackages = []string{"pyaes", "rsa", "ecdsa", "tlslite", "jinja2", "mako", "tornado"}
	// packages that the rules about waits know, if they are installed: elsewhere a directory may have such a name
	waitingPackages = []string{
		"redis", "sqlalchemy", "psycopg", "psycopg2", "psycopg_pool", "pymysql", "urllib3", "gunicorn", "uvicorn",
		"waitress", "cheroot", "flask", "django", "werkzeug", "starlette", "anyio", "asgiref", "celery", "billiard",
		"rq", "dramatiq", "huey", "apscheduler", "kombu", "gevent", "eventlet", "twisted", "aiohttp", "asyncpg",
		"aiomysql", "httpcore", "hypercorn", "mysql", "grpc", "dateutil", "arrow", "pendulum",
	}
	// packages that rules know, below the directories in which npm and Composer install
	nodePackages = []string{
		"pug", "ejs", "handlebars", "nunjucks", "lodash", "mustache", "winston", "winston-transport", "logform", "pino",
		"bunyan", "log4js", "morgan",
	}
	phpPackages = []string{"monolog"}
	// where a Python has its installed packages
	installed = []string{"site-packages", "dist-packages"}
)

var (
	// the directory of Ruby's standard library, below one named ruby
	rubyLibrary = regexp.MustCompile(`^3\.[0-9]+\.[0-9]+$`)
	// packages that the rules about waits know, below the directories in which gems are installed
	rubyPackages = []string{
		"puma", "webrick", "unicorn", "sidekiq", "rack", "sinatra", "action_controller", "action_dispatch",
		"abstract_controller", "active_support", "active_record", "connection_pool", "sequel", "mysql2", "pg", "redis",
	}
	gems = []string{"gems", "vendor_ruby"}
)

// rubyFrom is [publicFrom] for a Ruby file.
func rubyFrom(names []string) int {
	last := len(names) - 1
	for i, name := range names[:last] {
		if i > 0 && names[i-1] == "ruby" && rubyLibrary.MatchString(name) || slices.Contains(rubyPackages, name) &&
			slices.ContainsFunc(gems, func(d string) bool { return slices.Contains(names[:i], d) }) {
			return i
		}
	}
	return len(names)
}

// packageFrom is [publicFrom] for a file of a package that is installed in a directory of its own.
func packageFrom(names []string, directory string, packages []string) int {
	for i, name := range names[:len(names)-1] {
		if i > 0 && names[i-1] == directory && slices.Contains(packages, name) {
			return i
		}
	}
	return len(names)
}

// publicFrom returns the index from which on the names of a path are public: in a module of Python's standard
// library, or in a package that rules know. It returns the number of names if none is public.
func publicFrom(names []string) int {
	last := len(names) - 1
	switch path.Ext(names[last]) {
	case ".rb":
		return rubyFrom(names)
	case ".js", ".cjs", ".mjs":
		return packageFrom(names, "node_modules", nodePackages)
	case ".php":
		return packageFrom(names, "vendor", phpPackages)
	case ".py":
		return pythonFrom(names)
	}
	return len(names)
}

// pythonFrom is [publicFrom] for a Python file.
func pythonFrom(names []string) int {
	last := len(names) - 1
	for i, name := range names[:last] {
		if pythonLibrary.MatchString(name) && !slices.ContainsFunc(installed, func(d string) bool {
			return slices.Contains(names[i:], d)
		}) || slices.Contains(publicPackages, name) {
			return i
		}
		if i > 0 && slices.Contains(installed, names[i-1]) && slices.Contains(waitingPackages, name) {
			return i
		}
	}
	return len(names)
}

// kernelPath keeps the kernel's own names. Other names begin behind a process's root, and interfaces have names of
// their own.
func (n *Names) kernelPath(s string) string {
	names := strings.Split(s, "/")
	for i, name := range names {
		if name == "root" || name == "cwd" {
			return strings.Join(names[:i+1], "/") + n.path(strings.TrimPrefix(s, strings.Join(names[:i+1], "/")), false)
		}
		if i > 0 && names[i-1] == "net" {
			names[i] = n.Device(name)
		}
	}
	return strings.Join(names, "/")
}

// plainNames are names in paths that are the same everywhere: from the file system hierarchy (FHS 3.0), systemd's
// groups, Kubernetes and Docker, and control groups of version 1.
var plainNames = []string{
	".", "..", "bin", "sbin", "usr", "lib", "lib32", "lib64", "libexec", "local", "share", "opt", "srv", "var", "run",
	"tmp", "etc",
	"home", "root", "proc", "sys", "dev", "mnt", "media", "boot", "log", "cache", "x86_64-linux-gnu",
	"aarch64-linux-gnu", "jvm",
	"java", "server", "modules", "fs", "cgroup", "unified", "cpu", "cpuacct", "cpu,cpuacct", "cpuset", "memory", "pids",
	"blkio",
	"devices", "freezer", "shm", "null", "containerd", "docker", "podman", "crio", "lxc", "buildkit", "actions_job",
	"system.slice", "user.slice", "machine.slice", "init.scope", "app.slice", "session.slice", "background.slice",
	"kubepods", "kubepods.slice", "burstable", "besteffort", "guaranteed", "kubepods-burstable.slice",
	"kubepods-besteffort.slice", "site-packages", "dist-packages", "python3",
	"node_modules", "vendor", "ruby", "gems", "vendor_ruby", "…", "***",
}

// plainEnds say what a file is, or a unit of systemd.
var plainEnds = []string{
	".jar", ".war", ".class", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".php", ".sh", ".conf", ".cfg", ".yml",
	".yaml", ".json", ".xml",
	".properties", ".log", ".sock", ".map", ".pid", ".txt", ".gz", ".zip", ".jfr", ".tmp", ".service", ".slice",
	".scope", ".mount",
	".socket",
}

var (
	// what a distribution ships
	library = regexp.MustCompile(`^(?:lib[a-zA-Z0-9_+-]+|ld-[a-z0-9_-]+)\.so[.0-9]*$`)
	// a file of a control group
	control = regexp.MustCompile(`^(?:cpu|memory|io|pids|cpuset|cgroup|cpuacct)\.[a-z_.]+$`)
)

func (n *Names) component(name string) string {
	if name == "" || isNumber(name) || pythonLibrary.MatchString(name) || slices.Contains(plainNames, name) ||
		library.MatchString(name) || control.MatchString(name) {
		return name
	}
	end := path.Ext(name)
	if !slices.Contains(plainEnds, end) {
		end = ""
	}
	return n.Word("name", strings.TrimSuffix(name, end)) + end
}

// Devices whose names contain only their kind and number: from the kernel, udev (net_id), container engines and
// hypervisors.
var (
	plainDevice = regexp.MustCompile(
		`^(?:lo|eth|en[opsx]|wlan|wl[opsx]|ww|ib|bond|team|dummy|ifb|tun|tap|wg|virbr|vnet|veth|cali|cni|cbr|` +
			`flannel|cilium_|lxc|docker|podman|br-?|sd[a-z]|hd[a-z]|vd[a-z]|xvd[a-z]|nvme|mmcblk|dm-|md|loop|sr|zram|nbd|ram)[0-9a-f._:nps-]*(?:@.*)?$`)
	deviceKind = regexp.MustCompile(
		`^(?:virbr|lxcbr|lxdbr|br|docker|podman|cni|cbr|veth|cali|flannel|bond|team|tun|tap|wg)-?`)
)

// Device returns the pseudonym of a network interface or disk. Its kind stays.
func (n *Names) Device(name string) string {
	if name == "" || name == "all" || name == "default" || plainDevice.MatchString(name) {
		return name
	}
	kind := deviceKind.FindString(name)
	return kind + n.Word("if", name)
}
