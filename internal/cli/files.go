package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/recording/partial"
)

// files says how a command writes the files that it was asked for.
type files struct{ force bool }

func (w *files) addForceFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.force, "force", false, "overwrite a file that exists; directories are never overwritten")
}

// how returns what partial should do.
func (w *files) how() partial.How {
	return partial.How{Over: w.force, Owner: behindSudo(os.Geteuid(), os.Getenv)}
}

// behindSudo is the user who called sudo (sudo(8), SUDO_UID and SUDO_GID) and should own the files that are written;
// nil if there is none. Only root can give files away, and -1 would leave them as they are (chown(2)).
func behindSudo(euid int, env func(string) string) *partial.Owner {
	if euid != 0 {
		return nil
	}
	uid, err := strconv.ParseUint(env("SUDO_UID"), 10, 31)
	gid, gidErr := strconv.ParseUint(env("SUDO_GID"), 10, 31)
	if err != nil || gidErr != nil || uid == 0 {
		return nil
	}
	return &partial.Owner{UID: int(uid), GID: int(gid)}
}

// validateSave rejects a --save that cannot work, before ten seconds are spent.
func (w *files) validateSave(cmd *cobra.Command, path *string) error {
	if !cmd.Flags().Changed("save") {
		return nil
	}
	if *path == "" {
		return command.UsageErrorf("--save is empty: give the path of a new directory or .zip file")
	}
	// a shell completes a directory with a slash, and no temporary name would fit behind that
	*path = filepath.Clean(*path)
	if !strings.HasSuffix(*path, ".zip") { // it will be a directory, and a directory overwrites nothing
		return new(files).validateNew("--save", *path)
	}
	return w.validateNew("--save", *path)
}

// validateNew checks that a file or directory can be made at path, before ten seconds are spent.
func (w *files) validateNew(flag, path string) error {
	if st, err := os.Lstat(path); err == nil {
		switch {
		case !st.Mode().IsRegular():
			return command.UsageErrorf("%s %s exists: choose another name (it is no file that --force could "+
				"overwrite)", flag, path)
		case !w.force:
			return command.UsageErrorf("%s %s exists: choose another name, or overwrite it with --force", flag, path)
		}
	}
	dir := filepath.Dir(path)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return command.UsageErrorf("%s %s: there is no directory %s: make it, or choose another name", flag, path, dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return command.UsageErrorf("%s %s: cannot write to the directory %s: %v: choose another one", flag, path, dir,
			err)
	}
	return nil
}
