package cli

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A keyboard reads the keys of the terminal from which the program was started, one by one and without showing them.
type keyboard struct {
	tty    *os.File
	before unix.Termios
}

// openKeyboard returns nil if there is no keyboard: without a terminal, or in the background, where reading would
// stop the program (SIGTTIN).
func openKeyboard() *keyboard {
	// O_NONBLOCK: Close then ends a Read.
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	k := &keyboard{tty: tty}
	err = k.control(func(fd int) error {
		if front, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || front != unix.Getpgrp() {
			return fmt.Errorf("in the background: %w", err)
		}
		t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		k.before = *t
		t.Lflag &^= unix.ICANON | unix.ECHO // termios(3); ISIG stays, so that Ctrl-C is a signal
		t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
		return unix.IoctlSetTermios(fd, unix.TCSETS, t)
	})
	if err != nil {
		_ = tty.Close()
		return nil
	}
	return k
}

func (k *keyboard) control(do func(fd int) error) error {
	raw, err := k.tty.SyscallConn()
	if err != nil {
		return err
	}
	var done error
	err = raw.Control(func(fd uintptr) { done = do(int(fd)) })
	if err == nil {
		err = done
	}
	return err
}

// keys calls press for each key, until the keyboard is closed.
func (k *keyboard) keys(press func(key byte)) {
	one := make([]byte, 1)
	for {
		n, err := k.tty.Read(one)
		if err != nil || n == 0 {
			return
		}
		press(one[0])
	}
}

// close restores the terminal's settings.
func (k *keyboard) close() {
	_ = k.control(func(fd int) error { return unix.IoctlSetTermios(fd, unix.TCSETS, &k.before) })
	_ = k.tty.Close()
}
