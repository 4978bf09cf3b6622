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

// maxHostKeys bounds the host keys that are read from a report.
const maxHostKeys = 8

// hostKeys returns the SSH host keys of the guest's report in wire format.
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

// proveSSH checks that the SSH server at an address has one of the guest's
// keys. In the handshake the server signs a hash that includes the client's
// fresh random cookie (RFC 4253, section 8). The client does not log in.
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
				return errors.New("stop: the host key is known")
			}
			return fmt.Errorf("its host key %s is another machine's", ssh.FingerprintSHA256(key))
		},
	})
	if proven {
		return nil
	}
	return err // never nil, because the callback returns an error in every other case
}

// handshakeTime bounds a handshake; searchTime bounds the search for an address
// at which SSH answers. The result is only for display; no step depends on it.
const (
	handshakeTime = 5 * time.Second
	searchTime    = 10 * time.Second
)

// SSH returns the address at which the guest's SSH answers this host. Both
// results are "" if the guest has no SSH; why is set if no address answers.
func SSH(ctx context.Context, report string, addresses []string) (address, why string) {
	keys := hostKeys(report)
	if len(keys) == 0 || len(addresses) == 0 || !networked() {
		return "", ""
	}
	address, err := sshReach{
		Addresses: func(context.Context) ([]string, error) { return addresses, nil },
		Check: func(ctx context.Context, address string) error {
			return proveSSH(ctx, net.JoinHostPort(address, "22"), keys)
		},
		Every: time.Second, Retry: 500 * time.Millisecond, Limit: searchTime,
	}.first(ctx)
	if err != nil {
		return "", err.Error()
	}
	return address, ""
}

// networked reports whether this process is allowed to open network sockets. A
// provisioner with its own systemd unit is not.
func networked() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}
