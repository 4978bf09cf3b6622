package kvm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/internal/kvm/rpc"
	"hostler/internal/oneline"
)

// callTimeout bounds a call to libvirt.
const callTimeout = 20 * time.Second

// network is the name of libvirt's network for machines without `networks:`.
const network = "default"

// seen is the observed state of libvirt's storage pool and network. pool and
// network are true if the object is defined. poolStarts and networkStarts are
// true if the object starts with the host.
type seen struct {
	pool, poolRuns, poolStarts          bool
	network, networkRuns, networkStarts bool
}

// lacks describes what is missing, or returns "" if nothing is. With
// networkOnce it ignores the network, because hostler set the network up
// before, so an administrator must have stopped or removed it on purpose.
func (s seen) lacks(pool string, networkOnce bool) string {
	switch {
	case !s.pool:
		return fmt.Sprintf("libvirt has no storage pool %q", pool)
	case !s.poolRuns || !s.poolStarts:
		return fmt.Sprintf("libvirt's storage pool %q does not run, or does not start with the host", pool)
	case networkOnce:
	case !s.network:
		return fmt.Sprintf("libvirt has no network %q", network)
	case !s.networkRuns || !s.networkStarts:
		return fmt.Sprintf("libvirt's network %q does not run, or does not start with the host", network)
	}
	return ""
}

func observe(ctx context.Context, socket, pool string) (seen, error) {
	var s seen
	c, err := rpc.Dial(ctx, socket, callTimeout, nil)
	if err != nil {
		return s, err
	}
	defer c.Close()
	return look(c, pool)
}

func look(c *rpc.Conn, pool string) (seen, error) {
	var s seen
	p, err := rpc.Value(c, "find storage pool "+pool, func(l *libvirt.Libvirt) (libvirt.StoragePool, error) { return l.StoragePoolLookupByName(pool) })
	if err != nil && !fault.Is(err, fault.NotFound) {
		return s, err
	}
	if s.pool = err == nil; s.pool {
		err := c.Call("look at storage pool "+pool, func(l *libvirt.Libvirt) error {
			runs, err := l.StoragePoolIsActive(p)
			if err != nil {
				return err
			}
			starts, err := l.StoragePoolGetAutostart(p)
			s.poolRuns, s.poolStarts = runs != 0, starts != 0
			return err
		})
		if err != nil {
			return s, err
		}
	}
	n, err := rpc.Value(c, "find network "+network, func(l *libvirt.Libvirt) (libvirt.Network, error) { return l.NetworkLookupByName(network) })
	if err != nil && !fault.Is(err, fault.NotFound) {
		return s, err
	}
	if s.network = err == nil; s.network {
		err = c.Call("look at network "+network, func(l *libvirt.Libvirt) error {
			runs, err := l.NetworkIsActive(n)
			if err != nil {
				return err
			}
			starts, err := l.NetworkGetAutostart(n)
			s.networkRuns, s.networkStarts = runs != 0, starts != 0
			return err
		})
		return s, err
	}
	return s, nil
}

// configure makes the storage pool and the network. It skips steps that are
// already done (C22).
func (i *Initialiser) configure(ctx context.Context, progress func(string)) error {
	c, err := rpc.Dial(ctx, i.opts.Socket, callTimeout, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	have, err := look(c, i.opts.Pool)
	if err != nil {
		return err
	}
	once := i.networkOnce()
	if have.lacks(i.opts.Pool, once) != "" {
		progress("setting up libvirt's storage pool and network")
	}
	if err := i.makePool(c, have); err != nil || once {
		return err
	}
	if err := makeNetwork(c, have); err != nil {
		return err
	}
	return i.keepNetworkOnce()
}

// networkOnce reports whether hostler has set up libvirt's network before.
func (i *Initialiser) networkOnce() bool {
	_, err := os.Stat(i.opts.Paths.NetworkMark())
	return err == nil
}

func (i *Initialiser) keepNetworkOnce() error {
	mark := i.opts.Paths.NetworkMark()
	err := os.MkdirAll(filepath.Dir(mark), 0o700)
	if err == nil {
		err = atomicfile.Write(mark, nil, 0o600)
	}
	return fault.Explain(err, "cannot keep that libvirt's network was set up")
}

func (i *Initialiser) makePool(c *rpc.Conn, have seen) error {
	name := i.opts.Pool
	if !have.pool {
		text, err := (&libvirtxml.StoragePool{
			Type: "dir", Name: name, Target: &libvirtxml.StoragePoolTarget{Path: i.opts.PoolDir},
		}).Marshal()
		if err != nil {
			return fault.New(fault.Invalid, "cannot describe storage pool %q: %v", name, err)
		}
		if err := c.Call("define storage pool "+name, func(l *libvirt.Libvirt) error { _, err := l.StoragePoolDefineXML(text, 0); return err }); err != nil {
			return err
		}
	}
	p, err := rpc.Value(c, "find storage pool "+name, func(l *libvirt.Libvirt) (libvirt.StoragePool, error) { return l.StoragePoolLookupByName(name) })
	if err != nil {
		return err
	}
	if !have.poolRuns {
		if err := c.Call("build and start storage pool "+name, func(l *libvirt.Libvirt) error {
			return l.StoragePoolCreate(p, libvirt.StoragePoolCreateWithBuild)
		}); err != nil {
			return err
		}
	}
	if !have.poolStarts {
		return c.Call("have storage pool "+name+" start with the host", func(l *libvirt.Libvirt) error { return l.StoragePoolSetAutostart(p, 1) })
	}
	return nil
}

// makeNetwork starts libvirt's own network. If the network is not defined,
// makeNetwork first defines it on a free subnet.
func makeNetwork(c *rpc.Conn, have seen) error {
	if !have.network {
		text, err := describeNetwork()
		if err != nil {
			return err
		}
		if err := c.Call("define network "+network, func(l *libvirt.Libvirt) error { _, err := l.NetworkDefineXML(text); return err }); err != nil {
			return err
		}
	}
	n, err := rpc.Value(c, "find network "+network, func(l *libvirt.Libvirt) (libvirt.Network, error) { return l.NetworkLookupByName(network) })
	if err != nil {
		return err
	}
	if !have.networkRuns {
		if err := c.Call("start network "+network, func(l *libvirt.Libvirt) error { return l.NetworkCreate(n) }); err != nil {
			return fmt.Errorf("%w; `virsh net-edit %s` changes its subnet", err, network)
		}
	}
	if !have.networkStarts {
		return c.Call("have network "+network+" start with the host", func(l *libvirt.Libvirt) error { return l.NetworkSetAutostart(n, 1) })
	}
	return nil
}

func describeNetwork() (string, error) {
	subnet, err := freeSubnet()
	if err != nil {
		return "", err
	}
	text, err := (&libvirtxml.Network{
		Name: network, Forward: &libvirtxml.NetworkForward{Mode: "nat"},
		Bridge: &libvirtxml.NetworkBridge{Name: "virbr0", STP: "off"},
		IPs: []libvirtxml.NetworkIP{{
			Address: subnet + ".1", Netmask: "255.255.255.0",
			DHCP: &libvirtxml.NetworkDHCP{Ranges: []libvirtxml.NetworkDHCPRange{{Start: subnet + ".2", End: subnet + ".254"}}},
		}},
	}).Marshal()
	if err != nil {
		return "", fault.New(fault.Invalid, "cannot describe network %q: %v", network, err)
	}
	return text, nil
}

// start starts the daemon if it does not answer.
func (i *Initialiser) start(ctx context.Context, progress func(string)) error {
	if i.answers(ctx) == nil {
		return nil
	}
	progress("starting libvirt")
	if err := i.startDaemon(ctx); err != nil {
		return fault.New(fault.Transient, "cannot start libvirt: %w", err)
	}
	deadline := time.Now().Add(i.opts.StartTimeout)
	for {
		err := i.answers(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("cannot wait for libvirt: %w", ctx.Err())
		}
		if time.Now().After(deadline) {
			text := ""
			if data, readErr := os.ReadFile(i.logFile()); readErr == nil {
				text = "; its log: " + oneline.Last(oneline.Lines(string(data)), 1)
			}
			return fault.New(fault.Transient, "cannot start libvirt: no answer within %s: %w%s", i.opts.StartTimeout, err, text)
		}
		timer := time.NewTimer(200 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

func (i *Initialiser) answers(ctx context.Context) error {
	c, err := rpc.Dial(ctx, i.opts.Socket, 10*time.Second, nil)
	if err != nil {
		return err
	}
	c.Close()
	return nil
}

func (i *Initialiser) logFile() string {
	return filepath.Join(i.opts.Paths.Host("/var/log/libvirt"), "libvirtd.log")
}
