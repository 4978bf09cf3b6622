package guestprobe

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// server is an SSH server with that key on a port of this host.
func server(t *testing.T, key any) (endpoint string, public []byte) {
	t.Helper()
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{PasswordCallback: func(ssh.ConnMetadata, []byte) (*ssh.Permissions, error) {
		t.Error("somebody tries to log in")
		return nil, context.Canceled
	}}
	config.AddHostKey(signer)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _, _, _ = ssh.NewServerConn(conn, config)
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String(), signer.PublicKey().Marshal()
}

// D5: an SSH server is the guest's if its key signs this handshake's random
// data; another machine at the same address is told apart.
func TestSSHProvesTheGuest(t *testing.T) {
	_, short, _ := ed25519.GenerateKey(rand.Reader)
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, other, _ := ed25519.GenerateKey(rand.Reader)
	_, strangers := server(t, other)
	for name, key := range map[string]any{"ed25519": short, "rsa": long} {
		endpoint, public := server(t, key)
		if err := proveSSH(t.Context(), endpoint, [][]byte{strangers, public}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := proveSSH(t.Context(), endpoint, [][]byte{strangers}); err == nil {
			t.Errorf("%s: a stranger passes for the guest", name)
		}
	}
	endpoint, _ := server(t, short)
	if err := proveSSH(t.Context(), endpoint, [][]byte{strangers}); err == nil || !strings.Contains(err.Error(), "another machine's") {
		t.Errorf("a stranger: %v", err)
	}
}

// A server that is not SSH, or sends nothing, ends with the search.
func TestSilentPeer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	_, public := server(t, key)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := proveSSH(ctx, listener.Addr().String(), [][]byte{public}); err == nil || time.Since(began) > handshakeTime {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	if address, why := SSH(t.Context(), "init systemd\n", []string{"127.0.0.1"}); address != "" || why != "" {
		t.Errorf("a guest without SSH: %q, %q", address, why)
	}
}
