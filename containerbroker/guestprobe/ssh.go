package guestprobe

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// maxHostKeys bounds what is taken of a guest's host keys.
const maxHostKeys = 8

// hostKeys returns the SSH host keys that the guest told of itself, in the
// form in which they go over the wire.
func hostKeys(report string) (keys [][]byte) {
	for line := range strings.SplitSeq(report, "\n") {
		if line == "result" || len(keys) == maxHostKeys {
			break
		}
		if text, ok := strings.CutPrefix(line, "ssh-key "); ok {
			if key, err := base64.StdEncoding.DecodeString(text); err == nil && len(key) > 0 {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// proveSSH says whether the SSH at an address belongs to the guest that has
// the keys: in the handshake its key signs, together with what it sent itself,
// a number that nobody could know before (RFC 4253, section 8). No one logs in.
func proveSSH(ctx context.Context, endpoint string, keys [][]byte) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	algorithms := []string{}
	for _, key := range keys {
		public, err := ssh.ParsePublicKey(key)
		if err != nil {
			continue
		}
		if public.Type() == ssh.KeyAlgoRSA {
			algorithms = append(algorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
			continue
		}
		algorithms = append(algorithms, public.Type())
	}
	proven := false
	_, _, _, err = ssh.NewClientConn(conn, endpoint, &ssh.ClientConfig{
		User: "nobody", HostKeyAlgorithms: algorithms,
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			proven = slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key.Marshal()) })
			if proven {
				return errors.New("that is all that was asked")
			}
			return fmt.Errorf("its host key %s is another machine's", ssh.FingerprintSHA256(key))
		},
	})
	if proven {
		return nil
	}
	return err // never nil: the callback lets no handshake end
}

// handshakeTime bounds one handshake, searchTime the search for an address at
// which SSH answers: it is told, and nothing waits for it.
const (
	handshakeTime = 5 * time.Second
	searchTime    = 10 * time.Second
)

// SSH returns the address at which the guest's SSH answers this host, "" where
// it has none or none answers, for the reason that is told then.
func SSH(ctx context.Context, report string, addresses []string) (address, why string) {
	keys := hostKeys(report)
	if len(keys) == 0 || len(addresses) == 0 || !networked() {
		return "", ""
	}
	address, err := Reach{
		Addresses: func(context.Context) ([]string, error) { return addresses, nil },
		Check: func(ctx context.Context, address string) error {
			return proveSSH(ctx, net.JoinHostPort(address, "22"), keys)
		},
		Every: time.Second, Retry: 500 * time.Millisecond, Limit: searchTime,
	}.First(ctx)
	if err != nil {
		return "", err.Error()
	}
	return address, ""
}

// networked says whether this process may use the network: a provisioner in a
// unit of its own may not.
func networked() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}
