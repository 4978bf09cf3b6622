package lxd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// Create implements containerbroker.Broker. It sends the request only once. If
// the request fails, it reads the instance to learn the outcome.
func (d *Driver) Create(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) error {
	c := d.open(ctx, d.opts.RequestTimeout)
	fail := func(err error) error { return fmt.Errorf("cannot create instance %q: %w", m.Name, err) }
	req, err := d.createRequest(c, m)
	if err == nil {
		err = d.inTheWay(c, m)
	}
	if err != nil {
		return containerbroker.NotMade(fail(err))
	}
	progress.Report("create", "creating "+m.Name, -1)
	whole, end := false, d.own.beginCreate(m.Name)
	defer func() { end(whole) }()
	if err := failpoint.Hit(failpoint.LXDBeforePost); err != nil {
		return fail(err)
	}
	op, err := c.start(http.MethodPost, "/1.0/instances", req, "")
	_, refused := api.StatusErrorMatch(err)
	if hit := failpoint.Hit(failpoint.LXDPostNoReply); hit != nil && err == nil {
		err = hit
	}
	if err == nil {
		if err := failpoint.Hit(failpoint.LXDOpNotRecorded); err != nil {
			return fail(err)
		}
		_, err = d.wait(c, op)
		if err == nil {
			whole = true
			return nil
		}
		refused = errors.As(err, new(*operationError))
	}
	if ctx.Err() != nil {
		return fail(err)
	}
	return d.resolveCreate(c, m, err, refused)
}

// resolveCreate determines the outcome of a create that ended with the error
// cause. The instance's stamp shows which attempt made the instance. refused is
// true if cause is LXD's answer that the request or its operation failed.
// resolveCreate waits only for operations that LXD is running.
func (d *Driver) resolveCreate(c *client, m containerbroker.Machine, cause error, refused bool) error {
	absent := func(err error) error {
		if refused {
			return containerbroker.NotMade(err)
		}
		return err // the request may still be on its way
	}
	found, err := d.read(c, m.Name)
	if err == nil && ours(found, m.Stamp) && halfMade(found) || !refused && fault.Is(err, fault.NotFound) {
		// LXD accepts the request first, lists the instance some time later,
		// and makes its files later still.
		if _, err = d.awaitOperations(c, m.Name); err == nil {
			found, err = d.read(c, m.Name)
		}
	}
	switch {
	case fault.Is(err, fault.NotFound):
		return absent(fmt.Errorf("cannot create instance %q: %w", m.Name, cause))
	case err != nil:
		return fmt.Errorf("cannot create instance %q: %v; cannot look for it: %w", m.Name, cause, err)
	case ours(found, m.Stamp) && halfMade(found):
		if err := d.Delete(c.ctx, m.Name, m.Stamp); err != nil {
			return fmt.Errorf("cannot create instance %q: %s was interrupted: %w", m.Name, d.opts.Dialect.Name, err)
		}
		return containerbroker.NotMade(fault.New(fault.Transient, "cannot create instance %q: %s was interrupted; its partial instance is removed", m.Name, d.opts.Dialect.Name))
	case ours(found, m.Stamp):
		return nil
	}
	owner := "it was not made by hostler"
	if have := stampOf(found.Config); have != nil {
		owner = fmt.Sprintf("it belongs to namespace %q", clean(have.Namespace, 64))
		if sameOwner(have, m.Stamp) {
			owner = "an earlier attempt left it"
		}
	}
	return absent(fault.New(fault.Conflict, "cannot create instance %q: an instance of that name exists; %s", m.Name, owner))
}

func (d *Driver) read(c *client, name string) (api.Instance, error) {
	var found api.Instance
	_, err := c.get(instancePath(name), &found)
	return found, err
}

// ours reports whether the create attempt named by the stamp made the instance.
func ours(i api.Instance, s containerbroker.Stamp) bool {
	have := stampOf(i.Config)
	return have != nil && sameOwner(have, s) && have.Token == s.Token
}

// keyWhole marks an instance that looked half made when it was adopted, e.g. an
// instance that was restored from a backup and not started since.
const keyWhole = "user.hostler.whole"

// halfMade reports whether LXD has not finished creating an instance. If no
// operation runs on the instance, LXD will never finish. LXD sets
// volatile.apply_template once the files exist, and volatile.last_state.power
// at the first start. A half-made instance must not be started, because LXD
// 5.0.2 could not delete its remains from a btrfs pool.
func halfMade(i api.Instance) bool {
	return i.StatusCode == api.Stopped && i.Config[keyNamespace] != "" && i.Config[keyBaseImage] != "" &&
		i.Config["volatile.apply_template"] == "" && i.Config["volatile.last_state.power"] == "" && i.Config[keyWhole] == ""
}

func sameOwner(have *containerbroker.Stamp, s containerbroker.Stamp) bool {
	return have.Namespace == s.Namespace && have.UID == s.UID
}

func (d *Driver) createRequest(c *client, m containerbroker.Machine) (*api.InstancesPost, error) {
	s, err := settingsOf(m)
	if err != nil {
		return nil, err
	}
	if m.ImageID == "" {
		return nil, fault.New(fault.Invalid, "no image is named")
	}
	req := &api.InstancesPost{
		Name:   m.Name,
		Type:   api.InstanceTypeContainer,
		Source: api.InstanceSource{Type: "image", Fingerprint: m.ImageID},
	}
	req.Config = map[string]string{}
	for _, k := range configKeys {
		setKey(req.Config, k.key, k.write(&s))
	}
	writeStamp(req.Config, m.Stamp)
	if req.Profiles, err = d.profiles(c); err != nil {
		return nil, err
	}
	pool := m.Pool
	if pool == "" && m.RootDisk != 0 {
		if pool, err = d.profilePool(c, req.Profiles); err != nil {
			return nil, err
		}
	}
	if pool != "" {
		device := map[string]string{"type": "disk", "path": "/", "pool": pool}
		if m.RootDisk != 0 {
			device["size"] = number(m.RootDisk)
		}
		req.Devices = devices{rootName: device}
	}
	var profiled devices
	if len(m.NICs) > 0 {
		var config map[string]string
		if profiled, config, err = d.readProfiles(c, req.Profiles); err != nil {
			return nil, err
		}
		if config[keyVendorData] == "" && config["user.vendor-data"] == "" { // otherwise the administrator's own vendor-data stays
			req.Config[keyVendorData] = cloudinit.VendorData
		}
	}
	attached, err := d.attach(devices{}, m, profiled, false)
	if err != nil {
		return nil, err
	}
	if len(attached) > 0 {
		maps.Copy(attached, req.Devices)
		req.Devices = attached
	}
	return req, nil
}

// defaultProfile is the profile that every new instance gets.
const defaultProfile = "default"

// keyProfile marks Options.Profile as made by hostler (initialisers/lxd).
const keyProfile = "user.hostler.profile"

// profiles returns the profiles of a new instance. If two profiles give the
// same device, the later profile wins. Options.Profile is left out if another
// user of LXD made it. Creates within Options.ProfileTime share one request,
// unless an event reports a changed profile.
func (d *Driver) profiles(c *client) ([]string, error) {
	names := []string{defaultProfile}
	if d.opts.Profile == "" {
		return names, nil
	}
	d.extra.Lock()
	defer d.extra.Unlock()
	if time.Since(d.extra.looked) >= d.opts.ProfileTime {
		looked := time.Now()
		var extra api.Profile
		_, err := c.get("/1.0/profiles/"+url.PathEscape(d.opts.Profile), &extra)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, fmt.Errorf("cannot read profile %s: %w", d.opts.Profile, err)
		}
		d.extra.looked, d.extra.ours = looked, err == nil && extra.Config[keyProfile] != ""
	}
	if d.extra.ours {
		names = append(names, d.opts.Profile)
	}
	return names, nil
}

// forgetProfile makes the next create read Options.Profile again.
func (d *Driver) forgetProfile() {
	d.extra.Lock()
	defer d.extra.Unlock()
	d.extra.looked = time.Time{}
}

// profilePool returns the pool of the root disk that the profiles give, or
// fault.NeedsOperator if they give none.
func (d *Driver) profilePool(c *client, profiles []string) (string, error) {
	profiled, err := d.profileDevices(c, profiles)
	if err != nil {
		return "", err
	}
	if _, device := rootDisk(profiled); device["pool"] != "" {
		return device["pool"], nil
	}
	return "", fault.New(fault.NeedsOperator, "profile %s gives new instances no root disk: set types.%s.pool to a storage pool", strings.Join(profiles, ", "), d.opts.Dialect.Type)
}
