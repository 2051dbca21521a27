package cli

import (
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// A timeFlag is a flag for a time. Without a unit it is in seconds, as in sar and vmstat.
type timeFlag time.Duration

// timeVar adds a flag for a time.
func timeVar(f *pflag.FlagSet, to *time.Duration, name string, def time.Duration, usage string) {
	timeVarP(f, to, name, "", def, usage)
}

// timeVarP is timeVar with a one-letter form, too.
func timeVarP(f *pflag.FlagSet, to *time.Duration, name, letter string, def time.Duration, usage string) {
	*to = def
	f.VarP((*timeFlag)(to), name, letter, usage)
}

func (t *timeFlag) String() string { return time.Duration(*t).String() }

// Type returns the name of pflag's own type, on which the text of an error depends.
func (t *timeFlag) Type() string { return "duration" }

func (t *timeFlag) Set(s string) error {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		*t = timeFlag(time.Duration(n) * time.Second)
		return nil
	}
	d, err := time.ParseDuration(s)
	*t = timeFlag(d)
	return err
}
