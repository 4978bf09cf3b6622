package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"hostler/internal/fault"
)

// Plan returns the changes that applying the documents would make. It writes
// nothing.
func (c *Client) Plan(ctx context.Context, req ApplyRequest) (Plan, error) {
	var p Plan
	return p, c.Call(ctx, http.MethodPost, "/v1/plan", nil, req, &p)
}

// Apply makes the documents the declared state. When Apply() returns without an
// error, the documents are durable. The workers carry them out afterwards.
func (c *Client) Apply(ctx context.Context, req ApplyRequest) (Plan, error) {
	var p Plan
	return p, c.Call(ctx, http.MethodPost, "/v1/apply", nil, req, &p)
}

// Machines returns the named machines in the order of names, or all machines
// sorted by name if names is empty. It returns fault.NotFound for an unknown
// name.
func (c *Client) Machines(ctx context.Context, names ...string) ([]Machine, error) {
	var rows []Machine
	return rows, c.Call(ctx, http.MethodGet, "/v1/machines", url.Values{"name": names}, nil, &rows)
}

// Declarations returns all declarations, sorted by name.
func (c *Client) Declarations(ctx context.Context) ([]Declaration, error) {
	var rows []Declaration
	return rows, c.Call(ctx, http.MethodGet, "/v1/declarations", nil, nil, &rows)
}

// Images returns the images of the cache and of the hypervisors, and notices
// about images that could not be read.
func (c *Client) Images(ctx context.Context) (rows []Image, notices []string, err error) {
	resp, err := c.open(ctx, http.MethodGet, "/v1/images", nil, nil)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&rows); err != nil {
		return nil, nil, fault.New(fault.Transient, "cannot read the agent's answer: %w", err)
	}
	return rows, resp.Header.Values(noticeHeader), nil
}

// Get returns the rows of a kind as the agent sent them. kind is in the plural:
// machines, declarations, images, volumes, filesystems or networks. It may also
// be a path below a kind, e.g. images/available.
func (c *Client) Get(ctx context.Context, kind string) (json.RawMessage, error) {
	var rows json.RawMessage
	return rows, c.Call(ctx, http.MethodGet, "/v1/"+(&url.URL{Path: kind}).EscapedPath(), nil, nil, &rows)
}

// Show returns the details of an object, or fault.NotFound if it is absent.
func (c *Client) Show(ctx context.Context, kind, name string) (Object, error) {
	var o Object
	return o, c.Call(ctx, http.MethodGet, "/v1/objects/"+url.PathEscape(kind)+"/"+url.PathEscape(name), nil, nil, &o)
}

// Delete removes the objects (KIND/NAME) and returns their outcomes in the same
// order. The error concerns the whole call.
func (c *Client) Delete(ctx context.Context, objects []string) ([]Outcome, error) {
	var a DeleteAnswer
	return a.Outcomes, c.Call(ctx, http.MethodPost, "/v1/delete", nil, DeleteRequest{Objects: objects}, &a)
}

// Allow consents to an impact on held objects and returns their outcomes in the
// same order.
func (c *Client) Allow(ctx context.Context, impact string, objects []string) ([]Outcome, error) {
	var a DeleteAnswer
	return a.Outcomes, c.Call(ctx, http.MethodPost, "/v1/allow", nil, AllowRequest{Impact: impact, Objects: objects}, &a)
}

// Events returns events with a Seq above after, oldest first. object is
// KIND/NAME, KIND or empty for all. A limit of 0 means the agent's default.
func (c *Client) Events(ctx context.Context, after int64, object string, limit int) ([]Event, error) {
	var rows []Event
	return rows, c.Call(ctx, http.MethodGet, "/v1/events", eventQuery(after, object, limit), nil, &rows)
}

func eventQuery(after int64, object string, limit int) url.Values {
	q := url.Values{}
	if after > 0 {
		q.Set("after", strconv.FormatInt(after, 10))
	}
	if object != "" {
		q.Set("object", object)
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return q
}

// Power requests start, stop or restart of a machine.
func (c *Client) Power(ctx context.Context, machine, action string) error {
	return c.Call(ctx, http.MethodPost, machinePath(machine, "power"), nil, PowerRequest{Action: action}, nil)
}

// Migrate moves machines (all of the type from if machines is empty) to another
// container type, or only returns the steps if dryRun is true.
func (c *Client) Migrate(ctx context.Context, from, to string, machines []string, dryRun bool) ([]MigrationStep, error) {
	var a MigrateAnswer
	return a.Steps, c.Call(ctx, http.MethodPost, "/v1/migrate", nil, MigrateRequest{From: from, To: to, Machines: machines, DryRun: dryRun}, &a)
}

// Retry clears the error of an object (KIND/NAME) and requests a new attempt at
// once. If force is true, it detaches storage even while a process holds it.
func (c *Client) Retry(ctx context.Context, object string, force bool) error {
	return c.Call(ctx, http.MethodPost, "/v1/retry", nil, RetryRequest{Object: object, Force: force}, nil)
}

// ResizeVolume grows a volume and updates the size in its declaration.
func (c *Client) ResizeVolume(ctx context.Context, name, size string) error {
	return c.Call(ctx, http.MethodPost, "/v1/volumes/"+url.PathEscape(name)+"/resize", nil, ResizeRequest{Size: size}, nil)
}

// Adopt takes an instance under declaration and returns its machine.
func (c *Client) Adopt(ctx context.Context, containerType, instance string) (Machine, error) {
	var m Machine
	return m, c.Call(ctx, http.MethodPost, "/v1/adopt", nil, AdoptRequest{Type: containerType, Instance: instance}, &m)
}

// AdoptHost makes a store that was copied from another host this host's store.
func (c *Client) AdoptHost(ctx context.Context) error {
	return c.Call(ctx, http.MethodPost, "/v1/adopt-host", nil, nil, nil)
}

// Release ends the declaration of a machine, whose instance continues to exist.
func (c *Client) Release(ctx context.Context, machine string) error {
	return c.Call(ctx, http.MethodPost, machinePath(machine, "release"), nil, nil, nil)
}

// Export returns the YAML of a declaration, or of all existing objects if
// declaration is empty. missing lists the parts that could not be read.
func (c *Client) Export(ctx context.Context, declaration string) (text []byte, missing []string, err error) {
	query := url.Values{}
	if declaration != "" {
		query.Set("declaration", declaration)
	}
	resp, err := c.open(ctx, http.MethodGet, "/v1/export", query, nil)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, CallError(ctx, err)
	}
	return text, resp.Header[MissingHeader], nil
}

// Harvest returns the harvest mode.
func (c *Client) Harvest(ctx context.Context) (Harvest, error) {
	var h Harvest
	return h, c.Call(ctx, http.MethodGet, "/v1/harvest", nil, nil, &h)
}

// SetHarvest overrides the configured harvest mode; an empty mode ends the
// override.
func (c *Client) SetHarvest(ctx context.Context, mode string) (Harvest, error) {
	var h Harvest
	return h, c.Call(ctx, http.MethodPut, "/v1/harvest", nil, HarvestRequest{Mode: mode}, &h)
}

// Confirm keeps the change of the host's own network that waits for
// confirmation and returns its object.
func (c *Client) Confirm(ctx context.Context) (string, error) {
	var a GuardAnswer
	return a.Object, c.Call(ctx, http.MethodPost, "/v1/guard/confirm", nil, nil, &a)
}

// Revert undoes the guarded change of the host's own network and returns its
// object.
func (c *Client) Revert(ctx context.Context) (string, error) {
	var a GuardAnswer
	return a.Object, c.Call(ctx, http.MethodPost, "/v1/guard/revert", nil, nil, &a)
}

// Status returns the host's status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.Call(ctx, http.MethodGet, "/v1/status", nil, nil, &s)
}

// Doctor returns the findings of the preflight checks.
func (c *Client) Doctor(ctx context.Context) ([]Check, error) {
	var rows []Check
	return rows, c.Call(ctx, http.MethodGet, "/v1/doctor", nil, nil, &rows)
}

// Version returns the agent's version.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var v Version
	return v, c.Call(ctx, http.MethodGet, "/v1/version", nil, nil, &v)
}

// ImageDelete removes an unused image that hostler made. It returns
// fault.NotFound for an absent image.
func (c *Client) ImageDelete(ctx context.Context, reference string) error {
	return c.Call(ctx, http.MethodPost, "/v1/images/delete", nil, ImageRequest{Reference: reference}, nil)
}

func machinePath(machine string, parts ...string) string {
	return "/v1/machines/" + url.PathEscape(machine) + "/" + strings.Join(parts, "/")
}
