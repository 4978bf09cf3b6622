package lxd

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// backupPrefix begins the names of the backups that Export makes.
const backupPrefix = "hostler-"

// Movable returns why Transfer would refuse an instance, apart from its power
// state, or nil.
func (d *Driver) Movable(ctx context.Context, name string) error {
	_, err := d.movable(d.open(ctx, d.opts.RequestTimeout), name)
	return err
}

func (d *Driver) movable(c *client, name string) (api.InstanceFull, error) {
	found, err := d.readState(c, name)
	switch {
	case err != nil:
	case found.Type != "" && found.Type != string(api.InstanceTypeContainer):
		err = fault.New(fault.Invalid, "it is no container")
	case len(found.Snapshots) > 0:
		err = fault.New(fault.NeedsOperator, "it has snapshots, which would be lost: delete them first")
	}
	return found, err
}

// Transfer copies a stopped instance that bears the stamp to another daemon,
// and compares each file of the copy with the original. The copy keeps the
// name, stamp and settings, and is stopped. If Transfer fails, the caller must
// look for the copy.
func (d *Driver) Transfer(ctx context.Context, to *Driver, name, pool string, stamp containerbroker.Stamp) error {
	r, w := io.Pipe()
	imported := make(chan error, 1)
	go func() {
		err := to.Import(ctx, name, pool, r)
		_ = r.CloseWithError(err)
		imported <- err
	}()
	before, err := d.contents(ctx, name, stamp, w)
	_ = w.CloseWithError(err) // a nil error ends the backup
	if importErr := <-imported; err == nil {
		err = importErr
	}
	if err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.MigrateImported); err != nil {
		return err
	}
	after, err := to.contents(ctx, name, stamp, io.Discard)
	if err != nil {
		return err
	}
	if example, n := before.Difference(after); n > 0 {
		return fault.New(fault.NeedsOperator, "the copy of instance %q differs in %d files, e.g. %q", name, n, example)
	}
	return nil
}

// contents exports an instance and returns its contents. duplicate gets the
// backup as well.
func (d *Driver) contents(ctx context.Context, name string, stamp containerbroker.Stamp, duplicate io.Writer) (Contents, error) {
	r, w := io.Pipe()
	type result struct {
		Contents
		err error
	}
	read := make(chan result, 1)
	go func() {
		found, err := ReadContents(io.TeeReader(r, duplicate))
		_ = r.CloseWithError(err)
		read <- result{found, err}
	}()
	err := d.Export(ctx, name, stamp, w)
	_ = w.CloseWithError(err)
	found := <-read
	return found.Contents, cmp.Or(err, found.err)
}

// backupPost asks for a backup with metadata of a version. LXD 6 writes version 2 by
// default, which Incus and LXD 5.0 cannot read (API extension
// backup_metadata_version); daemons without the extension ignore the field.
type backupPost struct {
	api.InstanceBackupsPost
	Version uint32 `json:"version"`
}

// Export writes a backup of a stopped instance that bears the stamp's token. It
// removes the daemon's copy of the backup afterwards, and copies that earlier
// calls left. It refuses an instance with snapshots, which the backup would not
// contain.
func (d *Driver) Export(ctx context.Context, name string, expect containerbroker.Stamp, w io.Writer) error {
	return fault.Explain(d.export(d.open(ctx, d.opts.RequestTimeout), name, expect, w), "cannot export instance %q", name)
}

func (d *Driver) export(c *client, name string, expect containerbroker.Stamp, w io.Writer) (err error) {
	found, err := d.movable(c, name)
	switch {
	case err != nil:
		return err
	case !ours(found.Instance, expect):
		return fault.New(fault.Conflict, "it has another stamp")
	case found.StatusCode != api.Stopped:
		return fault.New(fault.NotReady, "it is not stopped")
	}
	path := instancePath(name) + "/backups"
	remove := func(url string) error {
		op, err := c.start(http.MethodDelete, url, nil, "")
		if err == nil {
			_, err = d.wait(c, op)
		}
		return err
	}
	var left []string
	if _, err := c.get(path, &left); err != nil {
		return err
	}
	for _, url := range left {
		if strings.HasPrefix(url[strings.LastIndexByte(url, '/')+1:], backupPrefix) {
			if err := remove(url); err != nil {
				return err
			}
		}
	}
	id := backupPrefix + strings.ToLower(rand.Text())
	op, err := c.start(http.MethodPost, path, backupPost{api.InstanceBackupsPost{Name: id, InstanceOnly: true, CompressionAlgorithm: "none"}, 1}, "")
	if err != nil {
		return err
	}
	if _, err := d.wait(c, op); err != nil {
		return err
	}
	defer func() {
		if removeErr := remove(path + "/" + id); err == nil {
			err = removeErr
		}
	}()
	resp, err := d.open(c.ctx, 0).lxd.Do(http.MethodGet, path+"/"+id+"/export", nil, nil)
	if err != nil {
		return c.classify(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fault.New(fault.Transient, "%s answered %s", c.dialect.Name, resp.Status)
	}
	n, err := io.Copy(w, resp.Body)
	if err == nil && resp.ContentLength >= 0 && n != resp.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Import makes a stopped instance from a backup that Export wrote, under its old
// name, with its old stamp and settings. If pool is "", the root disk gets the
// pool of the daemon's default profile. The instance must not start by itself, so
// the exported instance must have no autostart. If Import fails, the caller must
// look for the instance.
func (d *Driver) Import(ctx context.Context, name, pool string, backup io.Reader) error {
	c := d.open(ctx, d.opts.RequestTimeout)
	header := http.Header{"Content-Type": {"application/octet-stream"}}
	header.Set(c.dialect.headers+"name", name)
	header.Set(c.dialect.headers+"pool", pool)
	resp, err := d.open(ctx, 0).lxd.Do(http.MethodPost, "/1.0/instances", header, backup)
	if err != nil {
		return fmt.Errorf("cannot import instance %q: %w", name, c.classify(err))
	}
	defer func() { _ = resp.Body.Close() }()
	var answer api.Response
	var op api.Operation
	if err = json.NewDecoder(resp.Body).Decode(&answer); err == nil && answer.Type == api.ErrorResponse {
		err = c.classify(api.StatusErrorf(resp.StatusCode, "%s", clean(answer.Error, maxMessage)))
	} else if err == nil {
		err = json.Unmarshal(answer.Metadata, &op)
	}
	if err == nil {
		_, err = d.wait(c, op)
	}
	return fault.Explain(err, "cannot import instance %q", name)
}
