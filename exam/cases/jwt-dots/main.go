// A service that verifies tokens.
package main

import (
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

func main() {
	parser := jwt.NewParser(jwt.WithValidMethods([]string{"HS256"}))
	serve(func(kind string, size int) string {
		if kind == "dots" {
			return strings.Repeat(".", size)
		}
		return strings.Repeat("e", size) + ".e.e"
	}, func(text string) (string, error) {
		token, err := parser.Parse(text, func(*jwt.Token) (any, error) { return []byte("secret"), nil })
		if err != nil {
			return "", err
		}
		return token.Raw, nil
	})
}
