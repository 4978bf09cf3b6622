package lxd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// upload sends an image to LXD with hostler's properties and returns the
// image's fingerprint.
func (d *Driver) upload(ctx context.Context, artifact images.Artifact, ref string, progress containerbroker.Progress) (string, error) {
	c := d.open(ctx, 0)
	meter := &meter{total: artifact.Size, report: func(percent int) {
		progress.Report("image", "giving "+oneline.Address(ref)+" to "+d.opts.Dialect.Name, percent)
	}}
	body, contentType, err := imageBody(artifact, meter)
	if err != nil {
		return "", fault.New(fault.Transient, "cannot read the image: %w", err)
	}
	defer func() { _ = body.Close() }()
	header := http.Header{}
	header.Set("Content-Type", contentType)
	header.Set(c.dialect.headers+"properties", url.Values{
		propertyNamespace: {d.opts.Namespace}, propertyReference: {ref}, "description": {"hostler " + ref},
	}.Encode())
	if artifact.Rootfs == "" {
		header.Set(c.dialect.headers+"filename", filepath.Base(artifact.Path))
	}
	id, err := d.sendImage(c, header, body)
	if err == nil && id == artifact.Digest {
		return id, nil
	}
	if err == nil {
		return "", fault.New(fault.Transient, "%s computed fingerprint %s for it, expected %s", c.dialect.Name, id, artifact.Digest)
	}
	if ctx.Err() != nil {
		return "", err
	}
	// Another client may have been faster, or the answer was lost.
	if id, lookErr := d.fingerprint(c, artifact.Digest); lookErr == nil {
		return id, nil
	}
	return "", err
}

func (d *Driver) sendImage(c *client, header http.Header, body io.Reader) (string, error) {
	resp, err := c.lxd.Do(http.MethodPost, "/1.0/images", header, body)
	if err != nil {
		return "", c.classify(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer api.Response
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", c.classify(fmt.Errorf("%s gave an unreadable answer: %w", c.dialect.Name, err))
	}
	if answer.Type == api.ErrorResponse {
		return "", c.classify(api.StatusErrorf(resp.StatusCode, "%s", clean(answer.Error, maxMessage)))
	}
	var op api.Operation
	if err := json.Unmarshal(answer.Metadata, &op); err != nil || op.ID == "" {
		return "", fault.New(fault.Transient, "%s started no operation for the image", c.dialect.Name)
	}
	done, err := d.wait(c, op)
	if err != nil {
		return "", err
	}
	id, _ := done.Metadata["fingerprint"].(string)
	return id, nil
}

// imageBody opens an image in the form that LXD accepts, and returns its
// content and the content type. A unified image is sent unchanged. A split
// image becomes a multipart form with the fields metadata and rootfs.
func imageBody(a images.Artifact, m *meter) (io.ReadCloser, string, error) {
	metadata, err := os.Open(a.Path)
	if err != nil {
		return nil, "", err
	}
	if a.Rootfs == "" {
		return readCloser{io.TeeReader(metadata, m), metadata.Close}, "application/octet-stream", nil
	}
	rootfs, err := os.Open(a.Rootfs)
	if err != nil {
		_ = metadata.Close()
		return nil, "", err
	}
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() {
		err := errors.Join(copyField(form, "metadata", metadata, m), copyField(form, "rootfs", rootfs, m), form.Close())
		_ = w.CloseWithError(err) // nil reads as EOF
	}()
	return readCloser{r, func() error {
		return errors.Join(r.Close(), metadata.Close(), rootfs.Close())
	}}, form.FormDataContentType(), nil
}

func copyField(form *multipart.Writer, field string, f *os.File, m *meter) error {
	part, err := form.CreateFormFile(field, filepath.Base(f.Name()))
	if err != nil {
		return err
	}
	_, err = io.Copy(part, io.TeeReader(f, m))
	return err
}

type readCloser struct {
	io.Reader
	close func() error
}

func (r readCloser) Close() error { return r.close() }

// meter counts the bytes sent.
type meter struct {
	total, sent int64
	percent     int
	report      func(percent int)
}

func (m *meter) Write(p []byte) (int, error) {
	if m.sent == 0 {
		if err := failpoint.Hit(failpoint.LXDImageDownloading); err != nil {
			return 0, err
		}
	}
	m.sent += int64(len(p))
	if m.total > 0 {
		if percent := int(min(m.sent*100/m.total, 100)); percent != m.percent {
			m.percent = percent
			m.report(percent)
		}
	}
	return len(p), nil
}
