package kvm

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A libvirt that accepts connections and never answers holds no caller longer
// than the caller's context (C3).
func TestAListingEndsWithItsCaller(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := New(Options{Socket: socket, Namespace: "test", RequestTimeout: 5 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = d.List(ctx, false)
	if took := time.Since(began); took > 2*time.Second || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "cannot list libvirt's domains") {
		t.Errorf("%v after %s", err, took)
	}
}
