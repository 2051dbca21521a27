// A service that reads Accept-Language.
package main

import (
	"strconv"
	"strings"

	"golang.org/x/text/language"
)

func main() {
	serve(func(kind string, size int) string {
		if kind == "hyphens" {
			return "en" + strings.Repeat("-aaaaaaaaa", size)
		}
		return strings.Repeat("en-US,", size) + "en"
	}, func(header string) (string, error) {
		tags, _, err := language.ParseAcceptLanguage(header)
		return strconv.Itoa(len(tags)) + " tags", err
	})
}
