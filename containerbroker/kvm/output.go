package kvm

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/internal/fault"
)

// The guest's agent returns a command's output in a single answer. libvirt
// passes on answers of up to 4 MiB, and disconnects an agent that answers with
// 10 MiB. So a shell in the guest runs the command and passes only the
// beginnings of its outputs to the agent. It writes the rest to files, which
// the driver fetches in pieces.

// keeper is the script of that shell. Its arguments are a folder that does not
// exist yet, and the command. It passes on the beginnings of both outputs and
// the exit code. If there is more output, standard error ends with a line
// break, the folder's name and the names of the files with the rest. "lost"
// stands for output that could not be stored. If there is no more output, the
// script removes the folder. The command does not get the PATH that the script
// sets for itself.
const keeper = `
hostler_path=$PATH hostler_dir=$1 hostler_code= hostler_more=
shift
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mkdir -m 700 "$hostler_dir" 2>/dev/null
keep() {
	dd bs=64k count=8 iflag=fullblock 2>/dev/null
	{ cat >"$hostler_dir/$1"; } 2>/dev/null || { [ ! -e "$hostler_dir/$1" ] && [ "$(wc -c)" -eq 0 ]; } || echo lost >&5
}
begin() {
	exec 7>&2 2>/dev/null
	(PATH=$hostler_path; exec "$@" 2>&7 3>&- 4>&- 5>&- 6>&- 7>&-)
	echo $? >&5
}
exec 3>&1 4>&2
for hostler_word in $({ { begin "$@" 2>&1 >&6 | keep err >&4; } 6>&1 | keep out >&3; } 5>&1); do
	case $hostler_word in
	lost) hostler_more=" lost" ;;
	*) hostler_code=$hostler_word ;;
	esac
done
if [ -z "$hostler_more" ]; then
	for hostler_word in out err; do
		[ ! -s "$hostler_dir/$hostler_word" ] || hostler_more="$hostler_more $hostler_word"
	done
fi
case $hostler_more in
""|" lost") rm -rf "$hostler_dir" ;;
esac
[ -z "$hostler_more" ] || printf '\n%s%s' "$hostler_dir" "$hostler_more" >&2
exit "$hostler_code"
`

const (
	shell = "/bin/sh"
	// pieceSize is how many bytes of a file are fetched at once. It suits a
	// slow guest's serial port.
	pieceSize = 512 << 10
	// tidyTimeout bounds the removal of a command's files in its guest.
	tidyTimeout = 10 * time.Second
)

// guestOutput is the stored rest of a command's output, in files in the guest.
type guestOutput struct {
	d    *Driver
	c    *conn
	dom  libvirt.Domain
	dir  string // the folder in the guest; "" if there is none
	more []string
}

// runWithOutput runs a command in the guest like runInGuest(), but returns only
// the beginnings of its outputs. writeRest() fetches the rest. The caller must
// call tidy in every case.
func (d *Driver) runWithOutput(ctx context.Context, c *conn, dom libvirt.Domain, cmd command) (*guestOutput, ended, []byte, []byte, error) {
	k := &guestOutput{d: d, c: c, dom: dom, dir: "/tmp/hostler-exec." + rand.Text()}
	wrapped := cmd
	wrapped.Path, wrapped.Args = shell, append([]string{"-c", keeper, "hostler", k.dir, cmd.Path}, cmd.Args...)
	result, out, complaints, err := runInGuest(ctx, c, dom, wrapped)
	if err != nil && strings.Contains(err.Error(), notExecuted) {
		// Without a shell, run the command directly. Its output must fit into a
		// single answer.
		k.dir = ""
		result, out, complaints, err = runInGuest(ctx, c, dom, cmd)
	}
	if err != nil {
		return k, result, nil, nil, err
	}
	complaints, k.more = splitReport(complaints, k.dir)
	if len(k.more) == 0 {
		k.dir = "" // the script has removed the folder
	}
	return k, result, out, complaints, nil
}

// splitReport splits standard error into the command's text and the report that
// keeper appended. more has the words of the report after the folder.
func splitReport(complaints []byte, dir string) (rest []byte, more []string) {
	at := bytes.LastIndex(complaints, []byte("\n"+dir+" "))
	if dir == "" || at < 0 {
		return complaints, nil
	}
	return complaints[:at], strings.Fields(string(complaints[at+1+len(dir):]))
}

// writeRest writes the rest of the outputs.
func (k *guestOutput) writeRest(stdout, stderr io.Writer) error {
	for _, name := range k.more {
		w := map[string]io.Writer{"out": stdout, "err": stderr}[name]
		switch {
		case name == "lost":
			return fault.New(fault.NeedsOperator, "its output is longer than the guest has room for in /tmp")
		case w == nil:
			continue
		}
		if err := k.fetch(k.dir+"/"+name, w); err != nil {
			return err
		}
	}
	return nil
}

// fetch copies a file of the guest to w.
func (k *guestOutput) fetch(path string, w io.Writer) (err error) {
	type opened struct {
		Handle int64 `json:"handle"`
		Count  int64 `json:"count,omitempty"`
	}
	var file opened
	if err := ask(k.c, k.dom, "guest-file-open", map[string]string{"path": path, "mode": "r"}, &file.Handle); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ask(k.c, k.dom, "guest-file-close", file, nil)) }()
	for {
		var piece struct {
			Data string `json:"buf-b64"`
			EOF  bool   `json:"eof"`
		}
		if err := ask(k.c, k.dom, "guest-file-read", opened{file.Handle, pieceSize}, &piece); err != nil {
			return err
		}
		data, err := base64.StdEncoding.DecodeString(piece.Data)
		if err != nil {
			return fault.New(fault.Transient, "the guest's agent gave unreadable output")
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		if piece.EOF || len(data) == 0 {
			return nil
		}
	}
}

// tidy removes the command's files in the guest, even if the caller was
// cancelled. A command that still runs then stores no more output, because its
// folder is gone.
func (k *guestOutput) tidy(ctx context.Context) {
	if k.dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	c, err := k.d.open(ctx)
	if err != nil {
		return // the files stay until the guest restarts
	}
	defer c.Close()
	_, _, _, _ = runInGuest(ctx, c, k.dom, command{Path: "rm", Args: []string{"-rf", k.dir}})
}
