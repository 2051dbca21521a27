// A service that looks up a pattern in a document of JSON.
package main

import (
	"strings"

	"github.com/tidwall/gjson"
)

type document struct{ json, path string }

func main() {
	serve(func(kind string, size int) document {
		path := "#(name%\"*a*\").id"
		if kind == "stars" {
			path = "#(name%\"*a*a*a*a*a*a*b*\").id"
		}
		return document{`[{"name": "` + strings.Repeat("a", size) + `", "id": 1}]`, path}
	}, func(d document) (string, error) {
		return "id " + gjson.Get(d.json, d.path).String(), nil
	})
}
