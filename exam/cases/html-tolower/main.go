// A service that checks pages of HTML.
package main

import (
	"strings"

	"golang.org/x/net/html"
)

func main() {
	serve(func(kind string, size int) string {
		value := strings.Repeat("A", size)
		if kind == "short" {
			value = "A"
		}
		return "<math><annotation-xml encoding=" + value + ">" + strings.Repeat("<mi/>", 1000)
	}, func(page string) (string, error) {
		node, err := html.Parse(strings.NewReader(page))
		if err != nil {
			return "", err
		}
		return node.FirstChild.Data, nil
	})
}
