// Package redact replaces the names of hosts, addresses, users, files and groups by pseudonyms. The same name has the
// same pseudonym.
//
// A pseudonym is made with a key (HMAC-SHA256), so nobody without the key finds the name by trying all names. What
// the checks depend on stays: ports, loopback, whether an address is private, which addresses share a network, which
// group is in which, and the names of programs, methods and kinds of interface.
package redact

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"sync"
)

// Names makes pseudonyms under one key. It is safe for concurrent use.
type Names struct {
	key [sha256.Size]byte

	mu    sync.Mutex
	known map[string]string // names of users, hosts, containers and interfaces seen so far, for texts that mention them
}

// New takes the key: any secret of at least 16 bytes.
func New(key []byte) *Names { return &Names{key: sha256.Sum256(key), known: map[string]string{}} }

// ID identifies the key without revealing it: recordings with the same ID have the same pseudonyms.
func (n *Names) ID() string { return n.hex("key", "", 4) }

// sum is the keyed hash from which every pseudonym is made. The kind keeps a user with the name of a host from
// getting the host's pseudonym.
func (n *Names) sum(kind, name string) []byte {
	h := hmac.New(sha256.New, n.key[:])
	h.Write([]byte(kind))
	h.Write([]byte{0})
	h.Write([]byte(name))
	return h.Sum(nil)
}

func (n *Names) hex(kind, name string, bytes int) string {
	return hex.EncodeToString(n.sum(kind, name)[:bytes])
}

func (n *Names) uint64(kind, name string) uint64 { return binary.BigEndian.Uint64(n.sum(kind, name)) }

// wordBytes makes it unlikely that two of ten thousand names get the same pseudonym: 5 in 100,000.
const wordBytes = 5

// Word returns the pseudonym of a name of a kind, such as a user's, and remembers it for [Names.Text].
func (n *Names) Word(kind, name string) string {
	if name == "" || n.isPseudonym(kind, name) {
		return name
	}
	word := kind + "-" + n.hex(kind, name, wordBytes)
	if kind == "arg" || kind == "name" || kind == "net" { // these are also ordinary words
		return word
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[name] = word
	return word
}

// isPseudonym reports whether a name is a pseudonym already: two fields of a recording may hold the same one.
func (n *Names) isPseudonym(kind, name string) bool {
	rest, ok := strings.CutPrefix(name, kind+"-")
	if !ok || len(rest) != 2*wordBytes {
		return false
	}
	_, err := hex.DecodeString(rest)
	return err == nil
}

// User returns the pseudonym of a user's name or number. root stays: it says which rights the user had, and is
// nobody's name.
func (n *Names) User(name string) string {
	if name == "root" || name == "0" {
		return name
	}
	return n.Word("user", name)
}

// mentioned returns the pseudonym of a name that was seen before.
func (n *Names) mentioned(name string) (word string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	word, ok = n.known[name]
	return word, ok
}
