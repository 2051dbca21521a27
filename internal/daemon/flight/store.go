package flight

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// A File is a recording in the directory.
type File struct {
	Name     string    `json:"name"`
	URL      string    `json:"url"`
	Report   string    `json:"report,omitempty"` // URL of its report as a page; empty for a damaged one
	Began    time.Time `json:"incident_began"`
	Started  time.Time `json:"started"` // when the recording begins
	Seconds  float64   `json:"seconds"`
	Bytes    int64     `json:"bytes"`
	Target   string    `json:"target"`
	Check    string    `json:"check"`
	Subject  string    `json:"subject"`
	Severity string    `json:"severity"`
	Summary  string    `json:"summary"`
	Others   []string  `json:"others,omitempty"` // further findings that began in the meantime
	Damaged  string    `json:"damaged,omitempty"`
}

// id returns the id of the finding.
func (f File) id() string { return f.Check + " " + f.Subject }

// ours matches only the names that a recorder gives: other files in the directory are neither shown nor removed. The
// names contain time, host and check, so they sort by time and remain distinct when they are gathered from a fleet.
var ours = regexp.MustCompile(`^\d{8}T\d{6}Z-[A-Za-z0-9._-]{1,120}\.zip$`)

// half matches what [recording.Recording.Save] leaves when the program is killed. Older releases left the name out.
var half = regexp.MustCompile(`^\.\d{8}T\d{6}Z-[A-Za-z0-9._-]{1,120}\.zip\.\d+(\.perfdoctor)?\.partial$`)

// maxFiles bounds the list, which is kept in memory and shown on one page: with the default cooldown that is a week
// of the same finding.
const maxFiles = 1000

// fileName returns the name of a recording.
func fileName(began time.Time, host, check string) string {
	const maxHost = 63 // as for a label of a domain name
	plain := strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, host)
	return fmt.Sprintf("%s-%s-%s.zip", began.UTC().Format("20060102T150405Z"), plain[:min(len(plain), maxHost)], check)
}

// A store is the directory of recordings.
type store struct {
	dir string
	max int64
	log *slog.Logger

	mu    sync.Mutex
	files []File // by name, and so by time
}

// openStore makes the directory if need be, and lists its recordings.
func openStore(dir string, limit int64, log *slog.Logger) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("flight recorder: %w: choose another directory with --flight.dir", err)
	}
	if err := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return nil, fmt.Errorf("flight recorder: cannot write to the directory %s: %w: choose another one with "+
			"--flight.dir", dir, err)
	}
	s := &store{dir: dir, max: limit, log: log}
	if err := s.scan(); err != nil {
		return nil, fmt.Errorf("flight recorder: %w", err)
	}
	return s, nil
}

func (s *store) scan() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case half.MatchString(name):
			if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
				return err
			}
		case ours.MatchString(name) && e.Type().IsRegular():
			if f, err := s.read(name); err == nil {
				s.files = append(s.files, f)
			}
		}
	}
	s.trim()
	return nil
}

// read describes a file. A file that cannot be read is shown as damaged, and removed in its turn.
func (s *store) read(name string) (File, error) {
	path := filepath.Join(s.dir, name)
	st, err := os.Lstat(path)
	if err != nil {
		return File{}, err
	}
	f := File{Name: name, URL: listPath + "/" + name, Bytes: st.Size(), Began: st.ModTime().UTC()}
	if m, err := recording.OpenMeta(path); err == nil {
		f.describe(m)
	} else {
		f.Damaged = err.Error()
	}
	return f, nil
}

func (f *File) describe(m recording.Meta) {
	f.Report = f.URL + reportPath
	f.Began, f.Started, f.Seconds, f.Target = m.Started, m.Started, m.Duration, m.Target.Kind
	if m.Target.Name != "" {
		f.Target += " " + m.Target.Name
	}
	if i := m.Incident; i != nil {
		f.Began = m.Started.Add(time.Duration(i.From * float64(time.Second)))
		f.Check, f.Subject, f.Severity, f.Summary, f.Others = i.Check, i.Subject, i.Severity, i.Summary, i.Others
	}
}

// add writes a recording, and then removes the oldest ones if there are too many bytes. If the name exists already,
// it gets a number.
func (s *store) add(rec *recording.Recording, name string) (string, error) {
	base := strings.TrimSuffix(name, ".zip")
	for n := 2; s.exists(name); n++ {
		name = fmt.Sprintf("%s-%d.zip", base, n)
	}
	path := filepath.Join(s.dir, name)
	if err := rec.Save(path); err != nil {
		return "", err
	}
	st, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if st.Size() > s.max {
		return "", errors.Join(
			fmt.Errorf("%s has %d bytes, more than all recordings may have (%d): give a larger --flight.max-bytes",
				path, st.Size(), s.max), os.Remove(path))
	}
	f := File{Name: name, URL: listPath + "/" + name, Bytes: st.Size()}
	f.describe(rec.Meta)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files = append(s.files, f)
	s.trim()
	return name, nil
}

func (s *store) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(s.dir, name))
	return !errors.Is(err, fs.ErrNotExist)
}

// trim removes the oldest recordings while there are too many. A file that cannot be removed stays in the sum: the
// limit must hold, so others are removed instead.
func (s *store) trim() {
	slices.SortFunc(s.files, func(x, y File) int { return strings.Compare(x.Name, y.Name) })
	total := sum(s.files)
	for i := 0; i < len(s.files)-1 && (total > s.max || len(s.files) > maxFiles); {
		f := s.files[i]
		if err := os.Remove(filepath.Join(s.dir, f.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Error("flight recorder: an old recording cannot be removed", "err", err)
			i++
			continue
		}
		total -= f.Bytes
		s.files = slices.Delete(s.files, i, i+1)
	}
}

func sum(files []File) int64 {
	n := int64(0)
	for _, f := range files {
		n += f.Bytes
	}
	return n
}

func (s *store) bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sum(s.files)
}

// list returns the recordings, the newest first. It forgets a file that somebody has removed.
func (s *store) list() []File {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files = slices.DeleteFunc(s.files, func(f File) bool { return !s.exists(f.Name) })
	out := slices.Clone(s.files)
	slices.Reverse(out)
	return out
}

// open opens a recording by its name. It opens only a regular file in the directory itself that has a recording's
// name.
func (s *store) open(name string) (*os.File, os.FileInfo, error) {
	if !ours.MatchString(name) {
		return nil, nil, fs.ErrNotExist
	}
	// A link is refused as it is opened, and a pipe does not block.
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = f.Close() // only read
		return nil, nil, err
	}
	return f, st, nil
}
