package kvm

import (
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/internal/fault"
)

// emptyLibvirt answers every call but those of connecting with the error that
// there is no such volume. It returns its socket and a function that returns
// the procedures called since that function's last call.
func emptyLibvirt(t *testing.T) (socket string, calls func() []uint32) {
	t.Helper()
	const procOpen, procClose, procAuthList = 1, 2, 66 // remote_protocol.x
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var mu sync.Mutex
	var called []uint32
	serve := func(c net.Conn) {
		defer func() { _ = c.Close() }()
		for {
			frame := make([]byte, 28)
			if _, err := io.ReadFull(c, frame); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(frame))-28); err != nil {
				return
			}
			frame[19] = 1 // a reply
			switch proc := binary.BigEndian.Uint32(frame[12:]); proc {
			case procOpen, procClose:
			case procAuthList:
				frame = append(frame, 0, 0, 0, 1, 0, 0, 0, 0)
			default:
				mu.Lock()
				called = append(called, proc)
				mu.Unlock()
				frame[27] = 1 // an error: code, domain, the text "none", level, and seven empty fields
				for _, field := range []uint32{uint32(libvirt.ErrNoStorageVol), 18, 1, 4, 0x6e6f6e65, 2, 0, 0, 0, 0, 0, 0, 0} {
					frame = binary.BigEndian.AppendUint32(frame, field)
				}
			}
			binary.BigEndian.PutUint32(frame, uint32(len(frame)))
			if _, err := c.Write(frame); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return socket, func() []uint32 {
		mu.Lock()
		defer mu.Unlock()
		since := called
		called = nil
		return since
	}
}

// A create whose image was removed names the pool, both if the image was never
// read and if it was removed since it was last read.
func TestRemovedImageIsReported(t *testing.T) {
	const procLookup, procCreate = 95, 93 // remote_protocol.x
	socket, calls := emptyLibvirt(t)
	d := New(Options{Socket: socket, Namespace: "hostler", RequestTimeout: 10 * time.Second})
	c, err := d.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	where := &pool{conn: c, pool: libvirt.StoragePool{Name: "default"}, dir: "/pool"}
	p := plan{root: "/pool/root", note: note{Image: "abc"}}
	for name, first := range map[string]uint32{"never read": procLookup, "read before": procCreate} {
		if first == procCreate {
			d.capacities.put(where.path(imageName("hostler", "abc")), 0, time.Now())
		}
		err := d.furnish(c, where, p, libvirt.Domain{}, true, nil)
		if !fault.Is(err, fault.NotFound) || !strings.HasPrefix(err.Error(), `its image is no longer in storage pool "default"`) {
			t.Errorf("%s: %v", name, err)
		}
		if made := calls(); len(made) < 2 || !slices.Equal(made[:2], []uint32{first, procLookup}) {
			t.Errorf("%s: calls %v", name, made)
		}
		d.capacities.clear()
	}
}
