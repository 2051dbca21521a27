// A service that opens tokens encrypted by a password.
package main

import (
	"github.com/go-jose/go-jose/v3"
)

func main() {
	serve(func(_ string, size int) string {
		recipient := jose.Recipient{Algorithm: jose.PBES2_HS256_A128KW, Key: "another password", PBES2Count: size}
		e, err := jose.NewEncrypter(jose.A128GCM, recipient, nil)
		if err != nil {
			panic(err)
		}
		token, err := e.Encrypt([]byte("text"))
		if err != nil {
			panic(err)
		}
		text, err := token.CompactSerialize()
		if err != nil {
			panic(err)
		}
		return text
	}, func(text string) (string, error) {
		token, err := jose.ParseEncrypted(text)
		if err != nil {
			return "", err
		}
		plain, err := token.Decrypt("password")
		return string(plain), err
	})
}
