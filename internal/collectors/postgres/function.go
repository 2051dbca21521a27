package postgres

import (
	"regexp"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

// A session has a list of callbacks that say where it is if an error occurs: error_context_stack, the innermost first
// (struct ErrorContextCallback of src/include/utils/elog.h). The argument of PL/pgSQL's callback is a
// PLpgSQL_execstate. It begins with the address of the PLpgSQL_function, and that one has the address of its
// signature: at its beginning until 17, behind its CachedFunction since (src/pl/plpgsql/src/plpgsql.h). So it is
// searched for.
const (
	callbackNext, callbackArgument, callbackSize = 0, 16, 24
	// functionHead is how much is searched: a CachedFunction has 48 bytes.
	functionHead = 64
	// maxCallbacks is two for each of eight nested functions: the function's own and its statement's.
	maxCallbacks = 16
	maxSignature = 128
)

// signature matches a signature: a name, with the types of its arguments in brackets.
var signature = regexp.MustCompile(`^[^()]+\([^()]*\)$`)

// functionOf returns the signature of the innermost function of PL/pgSQL that a session is in: "audit_row()"; "" if
// it is in none.
func (s *server) functionOf(read memory.Reader) string {
	if s.errorStack == 0 {
		return ""
	}
	at, err := read.Word(s.errorStack)
	for range maxCallbacks {
		var callback [callbackSize]byte
		if err != nil || !isAddress(at) || read(at, callback[:]) != nil {
			return ""
		}
		if name := signatureOf(read, word(callback[:], callbackArgument)); name != "" {
			return name
		}
		at = word(callback[:], callbackNext)
	}
	return ""
}

// signatureOf returns the signature of a PLpgSQL_execstate's function; "" if something else lies there.
func signatureOf(read memory.Reader, state uint64) string {
	if !isAddress(state) {
		return ""
	}
	function, err := read.Word(state)
	var head [functionHead]byte
	if err != nil || !isAddress(function) || read(function, head[:]) != nil {
		return ""
	}
	for i := 0; i < len(head); i += 8 {
		var text [maxSignature]byte
		at := word(head[:], i)
		if !isAddress(at) || read(at, text[:]) != nil {
			continue
		}
		if name := nameIn(text[:]); signature.MatchString(name) {
			return name
		}
	}
	return ""
}

// addFunction adds the time of a statement to the function that it is in.
func (s *source) addFunction(of *server, g *glance, d time.Duration) {
	if name := of.functionOf(g.read); name != "" {
		addBounded(s.functions, [2]string{strconv.Itoa(of.pid), name}, d)
	}
}
