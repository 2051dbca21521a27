package lab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxDelay is a round trip by satellite, in one direction.
	maxDelay = time.Second
	// maxInFlight is the most packets on the line at one time. More are dropped, as by a router. At 1500 bytes that
	// is 1.2 Gbit/s for 100 ms.
	maxInFlight = 10_000
	// largestPacket is the largest size of an IPv4 packet, whatever the device's MTU is set to.
	largestPacket = 1 << 16
)

// DelayLine joins two hosts by a line that delays every packet by delay in either direction. The devices are up and
// have the given addresses as CIDR. It returns the names of the devices in a and in b. The ends are TUN devices, and
// this process carries the packets between them, because few kernels of small machines have the netem module. It is
// for latency, not for throughput.
func (l *Lab) DelayLine(a, b *Host, aCIDR, bCIDR string, delay time.Duration) (aDev, bDev string, err error) {
	if delay < 0 || delay > maxDelay {
		return "", "", fmt.Errorf("line from %s to %s: a delay of %v: want 0 to %v", a.name, b.name, delay, maxDelay)
	}
	aDev, bDev = a.nextDevice(), b.nextDevice()
	aEnd, err := a.openTUN(aDev)
	if err != nil {
		return "", "", err
	}
	bEnd, err := b.openTUN(bDev)
	if err != nil {
		return "", "", errors.Join(err, aEnd.Close())
	}
	var carriers sync.WaitGroup
	carriers.Go(func() { carry(aEnd, bEnd, delay) })
	carriers.Go(func() { carry(bEnd, aEnd, delay) })
	err = l.onClose(func() error {
		err := errors.Join(aEnd.Close(), bEnd.Close()) // the devices disappear with their descriptors
		carriers.Wait()
		return err
	})
	if err != nil {
		return "", "", err
	}
	return aDev, bDev, errors.Join(a.configure(aDev, aCIDR), b.configure(bDev, bCIDR))
}

// openTUN makes a TUN device in the host. The device exists as long as the file is open.
func (h *Host) openTUN(name string) (*os.File, error) {
	var file *os.File
	err := h.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open /dev/net/tun (needs CONFIG_TUN): %w", err)
		}
		if err := attachTUN(fd, name); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		file = os.NewFile(uintptr(fd), name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("host %s: device %s: %w", h.name, name, err)
	}
	return file, nil
}

// attachTUN attaches the descriptor to its device, without a header before the packets. Only then can it be polled
// (tun_chr_poll in drivers/net/tun.c), and so be made non-blocking for [os.NewFile].
func attachTUN(fd int, name string) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	return unix.SetNonblock(fd, true)
}

// packet is a packet on the line until arrives.
type packet struct {
	data    []byte
	arrives time.Time
}

// carry takes packets from one end to the other until the first one is closed.
func carry(from io.Reader, to io.Writer, delay time.Duration) {
	line := make(chan packet, maxInFlight)
	var arrivals sync.WaitGroup
	arrivals.Go(func() {
		for p := range line {
			time.Sleep(time.Until(p.arrives))
			_, _ = to.Write(p.data) // a device that is down or full drops the packet, as a line does
		}
	})
	buf := make([]byte, largestPacket)
	for {
		n, err := from.Read(buf)
		if err != nil {
			break
		}
		select {
		case line <- packet{append([]byte(nil), buf[:n]...), time.Now().Add(delay)}:
		default:
		}
	}
	close(line)
	arrivals.Wait()
}
