package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// ConfigPath is the file in the initramfs that tells the init what to do.
const ConfigPath = "/perfdoctor-guest.json"

// Marker is a word for the kernel's command line. The kernel hands name=value words that it does not know to init's
// environment (Documentation/admin-guide/kernel-parameters.rst).
const Marker = markerName + "=1"

const markerName = "PERFDOCTOR_GUEST"

// Config says what the init does.
type Config struct {
	Results string   `json:"results"` // the device for the frames, such as /dev/ttyS1
	Modules []string `json:"modules"` // files, in the order of loading
	Sysctls []string `json:"sysctls"` // name=value, set in this order after the modules
	Command string   `json:"command"`
	Args    []string `json:"args"` // without the command itself
	Env     []string `json:"env"`
	Dir     string   `json:"dir"`     // the command's working directory
	Outputs []string `json:"outputs"` // files and folders to send after the command; missing ones are left out
}

// IsInit reports whether this process is the init of a guest. Two marks distinguish a guest from other places where
// perfdoctor may be process 1, such as a container: the word on the kernel's command line, and the file that only
// package vm makes.
func IsInit() bool {
	if os.Getpid() != 1 || os.Getenv(markerName) != "1" {
		return false
	}
	_, err := os.Stat(ConfigPath)
	return err == nil
}

// Inside reports whether this process runs in a guest, by the same two marks. A guest may be changed as a whole,
// because it is gone afterwards. A container sees the command line of its machine, but not the file.
func Inside() bool {
	words, err := os.ReadFile("/proc/cmdline")
	if err != nil || !slices.Contains(strings.Fields(string(words)), Marker) {
		return false
	}
	_, err = os.Stat(ConfigPath)
	return err == nil
}

func readConfig(path string) (Config, error) {
	var c Config
	data, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}
