package syscalls

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// An Entry is what a blocked thread is in, according to /proc/PID/task/TID/syscall (fs/proc/base.c,
// proc_pid_syscall).
type Entry struct {
	Running bool
	Name    string // of the system call; empty: a page fault, or another way into the kernel
	Args    [6]uint64
	SP, PC  uint64 // of the program
}

// Parse reads "running", "-1 SP PC" or "NUMBER ARG0 … ARG5 SP PC", the number in decimal, all else in hexadecimal.
func Parse(b []byte) (e Entry, err error) {
	words := bytes.Fields(b)
	if len(words) == 1 && string(words[0]) == "running" {
		return Entry{Running: true}, nil
	}
	if len(words) != 9 && (len(words) != 3 || string(words[0]) != "-1") {
		return e, fmt.Errorf("syscall: %d words, want 1, 3 or 9", len(words))
	}
	number, err := strconv.Atoi(string(words[0]))
	if err != nil {
		return e, errors.New("syscall: bad number")
	}
	if e.Name = Name(number); e.Name == "" && number >= 0 { // newer than this program
		e.Name = strconv.Itoa(number)
	}
	into := []*uint64{&e.SP, &e.PC}
	if len(words) == 9 {
		into = []*uint64{&e.Args[0], &e.Args[1], &e.Args[2], &e.Args[3], &e.Args[4], &e.Args[5], &e.SP, &e.PC}
	}
	for i, to := range into {
		if *to, err = strconv.ParseUint(string(words[i+1]), 0, 64); err != nil {
			return Entry{}, errors.New("syscall: bad argument")
		}
	}
	return e, nil
}
