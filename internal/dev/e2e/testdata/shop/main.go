// Command shop answers orders over HTTP. Each answer is the work of five methods, in known shares. It tests the
// comparison of two recordings. -tax makes one of the methods more expensive, like a change of the program.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"
)

// rounds is how many rounds of arithmetic without a call make a unit of work, about a microsecond. Each method has
// its own: a profile shows an inlined function under its own name.
const rounds = 16

//go:noinline
func parse(s [32]byte) [32]byte {
	for range 20 * rounds {
		for i := range s {
			s[i] = s[i]*31 + s[(i+7)%32] ^ byte(i)
		}
	}
	return s
}

//go:noinline
func price(s [32]byte) [32]byte {
	for range 30 * rounds {
		for i := range s {
			s[i] = s[i]*31 + s[(i+7)%32] ^ byte(i)
		}
	}
	return s
}

//go:noinline
func discount(s [32]byte) [32]byte {
	for range 15 * rounds {
		for i := range s {
			s[i] = s[i]*31 + s[(i+7)%32] ^ byte(i)
		}
	}
	return s
}

//go:noinline
func tax(s [32]byte, units int) [32]byte {
	for range units * rounds {
		for i := range s {
			s[i] = s[i]*31 + s[(i+7)%32] ^ byte(i)
		}
	}
	return s
}

//go:noinline
func render(s [32]byte) [32]byte {
	for range 25 * rounds {
		for i := range s {
			s[i] = s[i]*31 + s[(i+7)%32] ^ byte(i)
		}
	}
	return s
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address")
	units := flag.Int("tax", 10, "units of work in the method tax, of 100 in all")
	flag.Parse()
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		var s [32]byte
		s = render(tax(discount(price(parse(s))), *units))
		fmt.Fprintf(w, "%x\n", s)
	})
	server := &http.Server{Addr: *listen, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}
