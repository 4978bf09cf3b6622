package api

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/client"
)

// countedHost counts the observations of a host. An observation ends when the
// test permits.
type countedHost struct {
	*standIn
	looks *atomic.Int32
	ends  chan struct{}
}

func (c countedHost) Doctor(ctx context.Context) ([]client.Check, error) {
	c.looks.Add(1)
	<-c.ends
	return c.standIn.Doctor(ctx)
}

func (c countedHost) BlockDevices(ctx context.Context) ([]client.BlockDevice, error) {
	c.looks.Add(1)
	return c.standIn.BlockDevices(ctx)
}

// Readers who ask in a loop share an observation of the host in two seconds,
// whichever reader asks first; a caller who may change the host gets an
// observation of their own.
func TestReadersShareOneLook(t *testing.T) {
	var looks atomic.Int32
	var now atomic.Int64
	now.Store(1000)
	ends := make(chan struct{})
	b := newBench(t, func(o *Options) {
		o.Clock = func() time.Time { return time.Unix(now.Load(), 0) }
		o.Service.Host = countedHost{o.Service.Host.(*standIn), &looks, ends}
	})
	reader := func(uid uint32) context.Context {
		return withCaller(t.Context(), caller{peerCredentials: peer(uid, readerGID), role: roleReader})
	}
	gone, leave := context.WithCancel(reader(2000))
	answers := make(chan error)
	ask := func(ctx context.Context) {
		_, err := b.doctor(ctx, nil)
		answers <- err
	}
	go ask(gone)
	eventually(t, "the first reader's look begins", func() bool { return looks.Load() == 1 })
	leave()
	if err := <-answers; err == nil {
		t.Error("the first reader was answered")
	}
	for uid := range uint32(50) {
		go ask(reader(3000 + uid))
	}
	close(ends)
	for range 50 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if n := looks.Load(); n != 1 {
		t.Errorf("51 readers had %d looks", n)
	}
	go ask(withCaller(t.Context(), caller{role: roleAdmin}))
	if err := <-answers; err != nil || looks.Load() != 2 {
		t.Errorf("root has no look of its own: %d looks, %v", looks.Load(), err)
	}
	now.Add(3)
	go ask(reader(2000))
	if err := <-answers; err != nil || looks.Load() != 3 {
		t.Errorf("three seconds later: %d looks, %v", looks.Load(), err)
	}
	read := b.rowSources(nil)["block-devices"].read
	for uid := range uint32(20) {
		if _, err := read(reader(uid)); err != nil {
			t.Error(err)
		}
	}
	if n := looks.Load(); n != 4 {
		t.Errorf("20 readers' streams had %d looks at the block devices, want 1", n-3)
	}
}
