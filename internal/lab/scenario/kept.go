package scenario

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Kept returns a run of the scenario made from the recordings that an earlier run kept in a directory. It holds only
// the promises of the fixes, which are made anew from each recording. It is nil if no recorded phase has its fix
// there.
func (s *Scenario) Kept(dir string, o Options) (*Result, error) {
	list, err := s.phases(o)
	if err != nil {
		return nil, err
	}
	recs := make([]*recording.Recording, len(list))
	res := s.NotRun(Held, "")
	for i := range list {
		path := filepath.Join(dir, RecordingName(s.Name, list[i].name))
		recs[i], err = recording.Open(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if before := recs[list[i].from]; list[i].cures() && before != nil {
			res.Phases = append(res.Phases, Phase{
				Name: list[i].name, Kind: list[i].kind, Promised: o.Promised(before, recs[i]),
			})
		}
	}
	if len(res.Phases) == 0 {
		return nil, nil
	}
	return res, nil
}

// KeptRuns returns the directories of runs below a directory that `scenario verify --keep` wrote, or that directory
// itself.
func KeptRuns(dir string) ([]string, error) {
	runs, err := filepath.Glob(filepath.Join(dir, "run-*"))
	if len(runs) == 0 {
		runs = []string{dir}
	}
	slices.Sort(runs)
	return runs, err
}
