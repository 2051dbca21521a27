package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
)

// serve is a service of one path: /read?KIND=N reads the document of that kind and size. Documents are made once and
// kept.
func serve[D any](make func(kind string, size int) D, read func(D) (string, error)) {
	var (
		lock      sync.Mutex
		documents = map[string]D{}
	)
	document := func(query url.Values, key string) (D, error) {
		lock.Lock()
		defer lock.Unlock()
		d, ok := documents[key]
		if ok {
			return d, nil
		}
		for kind := range query {
			size, err := strconv.Atoi(query.Get(kind))
			if err != nil {
				return d, err
			}
			d = make(kind, size)
		}
		documents[key] = d
		return d, nil
	}
	http.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		d, err := document(r.URL.Query(), r.URL.RawQuery)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		text, err := read(d)
		if err != nil {
			text = "not valid: " + err.Error()
		}
		fmt.Fprintf(w, "%.200s\n", text)
	})
	if err := http.ListenAndServe("127.0.0.1:8080", nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
