//go:build ignore

// Command shop has one fault in Go: shop FAULT sick|cured PORT BACKEND. README.md beside it says what each is.
package main

import (
	"bufio"
	"crypto/md5"
	"net"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

var sick = os.Args[2] == "sick"

// --- regex: this engine never backtracks; its fault is a pattern that is compiled for each use

const pattern = `^(\w+\s?)+;`

var (
	names = regexp.MustCompile(pattern)
	text  = strings.Repeat("one of the names ", 8)
)

//go:noinline
func matchNames() {
	for range 50 {
		re := names
		if sick {
			re = regexp.MustCompile(pattern)
		}
		re.MatchString(text)
	}
}

// --- lock

var (
	seats  sync.Mutex
	booked int
)

//go:noinline
func audit() { time.Sleep(5 * time.Millisecond) }

//go:noinline
func bookSeat() {
	if !sick {
		audit()
	}
	seats.Lock()
	defer seats.Unlock()
	booked++
	if sick {
		audit()
	}
}

// --- pool

var pool = make(chan net.Conn, 16)

func openPool() {
	n := 16
	if sick {
		n = 2
	}
	for range n {
		c, err := net.Dial("tcp", os.Args[4])
		if err != nil {
			panic(err)
		}
		pool <- c
	}
}

//go:noinline
func fetchPrice() {
	c := <-pool
	defer func() { pool <- c }()
	c.Write([]byte("price\n"))
	c.Read(make([]byte, 64))
}

// --- gc: what lives is full of pointers, and is marked again and again

type order struct {
	lines []*line
	next  *order
}

type line struct{ item, count int }

var kept []*order

//go:noinline
func newOrder() *order {
	o := &order{}
	for i := range 10 {
		o.lines = append(o.lines, &line{i, i})
	}
	return o
}

func fillCache() {
	if !sick {
		return
	}
	for range 100_000 {
		kept = append(kept, newOrder())
	}
}

//go:noinline
func makeOrders() {
	n := 50
	if sick {
		n = 5000
	}
	for range n {
		if o := newOrder(); len(kept) > 0 {
			kept[o.lines[3].item] = o
		}
	}
	if sick {
		runtime.GC() // "to keep the memory low"
	}
}

// --- sized

//go:noinline
func digestPart() {
	data := make([]byte, 1<<16)
	for range 50 {
		sum := md5.Sum(data)
		copy(data, sum[:])
	}
}

func digestAll() {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(digestPart)
	}
	wg.Wait()
}

func serve(c net.Conn, handle func()) {
	defer c.Close()
	for in := bufio.NewReader(c); ; {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		handle()
		c.Write([]byte("ok\n"))
	}
}

func main() {
	switch os.Args[1] {
	case "pool":
		openPool()
	case "gc":
		fillCache()
	case "sized":
		runtime.GOMAXPROCS(1)
		if sick {
			runtime.GOMAXPROCS(runtime.NumCPU())
		}
	}
	handle := map[string]func(){
		"regex": matchNames, "lock": bookSeat, "pool": fetchPrice, "gc": makeOrders, "sized": digestAll,
	}[os.Args[1]]
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Args[3])
	if err != nil {
		panic(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go serve(c, handle)
	}
}
