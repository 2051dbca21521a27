package push

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"regexp"
	"strings"

	"github.com/prometheus/common/config"
)

// clientOf makes the client of a destination, with the password, token, certificates and proxy from a file in the
// format of Prometheus's http_config, if one is given. Passwords and tokens in separate files are read again for each
// message.
func clientOf(file string) (*http.Client, error) {
	client := &http.Client{}
	if file != "" {
		cfg, _, err := config.LoadHTTPConfigFile(file)
		if err != nil {
			return nil, hidden(file, err)
		}
		for _, name := range secretFiles(cfg) {
			if _, err := os.ReadFile(name); err != nil {
				return nil, err // it names the file
			}
		}
		if client, err = config.NewClientFromConfig(*cfg, "push"); err != nil {
			return nil, hidden(file, err)
		}
	}
	client.Timeout = tryTime
	// A message and its password are only for the server that was named.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, nil
}

// secretFiles are the files that are read when a message is sent. A missing one must be reported before that.
func secretFiles(cfg *config.HTTPClientConfig) (names []string) {
	if b := cfg.BasicAuth; b != nil {
		names = append(names, b.UsernameFile, b.PasswordFile)
	}
	if a := cfg.Authorization; a != nil {
		names = append(names, a.CredentialsFile)
	}
	if o := cfg.OAuth2; o != nil {
		names = append(names, o.ClientSecretFile)
	}
	var given []string
	for _, name := range names {
		if name != "" {
			given = append(given, name)
		}
	}
	return given
}

// lineOf finds the line at which the parser failed.
var lineOf = regexp.MustCompile(`\bline \d+\b`)

// hidden returns an error without its quotations from the file, which may be a password.
func hidden(file string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path
	}
	if text := err.Error(); strings.HasPrefix(text, "at most one of ") { // the library's own words
		return fmt.Errorf("%s: %s", file, text)
	}
	where := ""
	if line := lineOf.FindString(err.Error()); line != "" {
		where = ", " + line
	}
	return fmt.Errorf("%s%s: not as http_config of Prometheus's configuration wants it (not quoted here: it may be a "+
		"password)",
		file, where)
}
