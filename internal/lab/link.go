package lab

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
)

// nextDevice returns the name of the host's next interface, eth0 upwards. The run's name is in the alias, because a
// device name holds 15 bytes (IFNAMSIZ).
func (h *Host) nextDevice() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := fmt.Sprintf("eth%d", h.devices)
	h.devices++
	return name
}

// Link joins two hosts with a veth pair. The devices are up and have the given addresses as CIDR ("" for none). It
// returns the names of the devices in a and in b.
func (l *Lab) Link(a, b *Host, aCIDR, bCIDR string) (aDev, bDev string, err error) {
	aDev, bDev = a.nextDevice(), b.nextDevice()
	pair := netlink.NewVeth(netlink.LinkAttrs{Name: aDev, TxQLen: -1})
	pair.PeerName = bDev
	pair.PeerNamespace = netlink.NsFd(b.ns)
	if err := a.nl.LinkAdd(pair); err != nil {
		return "", "", fmt.Errorf("link %s to %s: %w", a.name, b.name, err)
	}
	if err := l.onClose(func() error { return a.removeDevice(aDev) }); err != nil {
		return "", "", err
	}
	if err := errors.Join(a.configure(aDev, aCIDR), b.configure(bDev, bCIDR)); err != nil {
		return "", "", err
	}
	return aDev, bDev, errors.Join(a.awaitUp(aDev), b.awaitUp(bDev))
}

const (
	upWait = 10 * time.Second // the work waits for the rtnl lock, which the removal of other namespaces holds
	upPoll = time.Millisecond
)

// awaitUp waits until dev can send. A device that was just brought up drops everything until a kernel worker has seen
// its carrier and attached its queue (linkwatch_do_dev in net/core/link_watch.c). The first SYN would be lost, which
// costs 1 s.
func (h *Host) awaitUp(dev string) error {
	for deadline := time.Now().Add(upWait); ; time.Sleep(upPoll) {
		link, err := h.nl.LinkByName(dev)
		if err != nil {
			return fmt.Errorf("host %s: device %s: %w", h.name, dev, err)
		}
		if link.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("host %s: device %s is %s after %v", h.name, dev, link.Attrs().OperState, upWait)
		}
	}
}

// Port is a host to join to a bridge, with its address as CIDR.
type Port struct {
	Host *Host
	CIDR string
}

// Bridge makes a bridge in h, as a container engine does. The bridge has the address cidr ("" for none), and a veth
// pair joins each port's host to it. Routes are left to the caller. It returns the bridge's name.
func (l *Lab) Bridge(h *Host, cidr string, ports ...Port) (string, error) {
	name := h.nextDevice()
	return name, l.NamedBridge(h, name, cidr, ports...)
}

// NamedBridge is [Lab.Bridge] with the given device name of up to 15 bytes: engines have known names, such as
// docker0.
func (l *Lab) NamedBridge(h *Host, name, cidr string, ports ...Port) error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: -1}}
	if err := h.nl.LinkAdd(bridge); err != nil {
		return fmt.Errorf("bridge in %s: %w", h.name, err)
	}
	if err := l.onClose(func() error { return h.removeDevice(name) }); err != nil {
		return err
	}
	if err := h.configure(name, cidr); err != nil {
		return err
	}
	for _, port := range ports {
		dev, _, err := l.Link(h, port.Host, "", port.CIDR)
		if err != nil {
			return err
		}
		if err := h.enslave(dev, name); err != nil {
			return err
		}
	}
	if len(ports) == 0 {
		return nil // without a port it has no carrier
	}
	return h.awaitUp(name)
}

func (h *Host) enslave(dev, bridge string) error {
	port, err := h.nl.LinkByName(dev)
	if err != nil {
		return fmt.Errorf("host %s: device %s: %w", h.name, dev, err)
	}
	master, err := h.nl.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("host %s: bridge %s: %w", h.name, bridge, err)
	}
	if err := h.nl.LinkSetMaster(port, master); err != nil {
		return fmt.Errorf("host %s: join %s to %s: %w", h.name, dev, bridge, err)
	}
	return nil
}

// configure marks the device with the run's name, addresses it and brings it up.
func (h *Host) configure(dev, cidr string) error {
	link, err := h.nl.LinkByName(dev)
	if err != nil {
		return fmt.Errorf("host %s: device %s: %w", h.name, dev, err)
	}
	if err := h.nl.LinkSetAlias(link, h.lab.run+"-"+h.name+"-"+dev); err != nil {
		return fmt.Errorf("host %s: alias of %s: %w", h.name, dev, err)
	}
	if cidr != "" {
		if err := h.address(link, cidr); err != nil {
			return fmt.Errorf("host %s: address %s on %s: %w", h.name, cidr, dev, err)
		}
	}
	if err := h.nl.LinkSetUp(link); err != nil {
		return fmt.Errorf("host %s: bring %s up: %w", h.name, dev, err)
	}
	return nil
}

func (h *Host) address(link netlink.Link, cidr string) error {
	addr, err := netlink.ParseAddr(cidr)
	if err != nil {
		return err
	}
	if addr.IP.To4() == nil {
		addr.Flags = ifaFlagNoDAD
	}
	return h.nl.AddrAdd(link, addr)
}

// ifaFlagNoDAD is IFA_F_NODAD (include/uapi/linux/if_addr.h): an IPv6 address is usable at once, without the second
// that duplicate address detection takes.
const ifaFlagNoDAD = 0x02

func (h *Host) removeDevice(dev string) error {
	link, err := h.nl.LinkByName(dev)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil // it went away with its peer
	}
	if err != nil {
		return fmt.Errorf("host %s: device %s: %w", h.name, dev, err)
	}
	if err := h.nl.LinkDel(link); err != nil {
		return fmt.Errorf("host %s: remove %s: %w", h.name, dev, err)
	}
	return nil
}
