package cgroup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/ebpf"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const (
	// maxLimited bounds the groups with series: a node runs a few hundred pods.
	maxLimited = 500
	// maxGroups bounds the walk: 20 µs each, so 100 ms of the half second a sample may take.
	maxGroups = 5000
	// walkEvery is how often new groups are looked for; the others are read in every sample.
	walkEvery = 10 * time.Second
)

// hostSource reads all groups of the host that have a CPU quota.
type hostSource struct {
	reader  *reader
	cpu     root
	usage   root // where the CPU time is; in v1 often another tree with the same paths
	limited []string
	walked  time.Time
	beyond  int // groups past maxLimited
	unseen  bool

	// reads the limits of all groups in one pass of the kernel; nil: not to be used
	program *ebpf.Background[*ebpf.Bandwidth]
	paths   map[uint64]string
}

// root is the top of one tree.
type root struct {
	dir     string
	version int
}

// openHost finds the trees through perfdoctor's own groups: all levels end at the root.
func openHost(ctx context.Context, h *host.Host) (*hostSource, error) {
	link, err := os.Readlink(filepath.Join(h.Proc, "self"))
	if err != nil {
		return nil, err
	}
	self, err := strconv.Atoi(link)
	if err != nil {
		return nil, fmt.Errorf("%s/self: %w", h.Proc, err)
	}
	own, err := h.Resolve(ctx, host.Selector{PID: self})
	if err != nil {
		return nil, fmt.Errorf("find the cgroup trees: %w", err)
	}
	s := &hostSource{reader: newReader()}
	all := controllers()
	if s.cpu = rootOf(own.Cgroups, all[0]); s.cpu.dir == "" {
		return nil, collect.Unavailable(recording.StatusUnsupported,
			"mount the cgroup file systems where perfdoctor runs",
			"no tree of control groups with the cpu controller can be seen%s", whyHidden(own.Notes))
	}
	s.usage = rootOf(own.Cgroups, all[1])
	return s, nil
}

func rootOf(levels []host.CgroupLevel, c controller) root {
	groups, version := groupsOf(levels, c)
	if len(groups) == 0 {
		return root{}
	}
	return root{groups[len(groups)-1].dir, version}
}

// Close unloads the program.
func (s *hostSource) Close() error { return s.program.Close() }

// Sample appends one sample.
func (s *hostSource) Sample(ctx context.Context, a *recording.Appender) error {
	limits, err := s.find(ctx)
	if err != nil {
		return err
	}
	if err := s.program.Append(a, "limits are read from the files of each control group"); err != nil {
		return err
	}
	a.Lost(s.beyond, fmt.Sprintf("groups with a CPU quota beyond the first %d", maxLimited))
	if s.unseen {
		a.Lost(1, fmt.Sprintf("search for groups with a CPU quota, given up after %d groups", maxGroups))
	}
	for _, m := range otherMetrics() {
		a.Missing(m, recording.StatusUnsupported, "it is read for a target only, and the whole host was diagnosed",
			"name a target with --pid, --comm, --cgroup or --container")
	}
	a.None(metric.CgroupDir)
	s.reader.begin(a)
	for _, path := range s.limited {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.readGroup(path, limits[path])
	}
	s.reader.report(cpuMetrics())
	return nil
}

// find returns the limits by path where a program reports them. Otherwise it looks for groups with a limit now and
// then; their limits are read from files.
func (s *hostSource) find(ctx context.Context) (map[string]*ebpf.CPULimit, error) {
	byID, err := s.readPass(ctx)
	if err != nil {
		return nil, err
	}
	if byID != nil {
		s.walked = time.Time{}
		return s.locate(ctx, byID)
	}
	if s.walked.IsZero() || time.Since(s.walked) >= walkEvery {
		if err := s.walk(ctx); err != nil {
			return nil, err
		}
		s.walked = time.Now()
	}
	return nil, nil
}

// readGroup reads a group's files, except for its limit where that is known.
func (s *hostSource) readGroup(path string, l *ebpf.CPULimit) {
	g := group{path: path, dir: s.cpu.dir + path}
	s.reader.place(g, "cpu", s.cpu.version)
	if l != nil {
		s.reader.limitOf(g, l)
	}
	if s.cpu.version == 2 {
		s.reader.requestV2(g)
		if l == nil {
			s.reader.bandwidthV2(g)
		}
		s.reader.usageV2(g)
		return
	}
	s.reader.requestV1(g)
	if l == nil {
		s.reader.bandwidthV1(g)
	}
	if g.dir = s.usage.dir + path; s.usage.version == 1 {
		s.reader.usageV1(g)
	}
}

// walk looks for groups with a quota, the upper ones first.
func (s *hostSource) walk(ctx context.Context) error {
	s.limited, s.beyond, s.unseen = nil, 0, false
	queue := []string{""}
	for n := 0; n < len(queue); n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if n >= maxGroups {
			s.unseen = true
			return nil
		}
		path := queue[n]
		if s.hasQuota(path) {
			if len(s.limited) < maxLimited {
				s.limited = append(s.limited, path)
			} else {
				s.beyond++
			}
		}
		for _, name := range host.CgroupsBelow(s.cpu.dir + path) {
			queue = append(queue, path+"/"+name)
		}
	}
	slices.Sort(s.limited)
	return nil
}

func (s *hostSource) hasQuota(path string) bool {
	file, none := "/cpu.cfs_quota_us", "-1"
	if s.cpu.version == 2 {
		file, none = "/cpu.max", "max"
	}
	b, err := host.ReadFile(s.cpu.dir+path+file, s.reader.buf)
	if err != nil {
		return false
	}
	s.reader.buf = b
	return !strings.HasPrefix(string(b), none)
}
