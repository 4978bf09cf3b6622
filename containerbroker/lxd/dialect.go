package lxd

import (
	"strings"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/pause"
)

// Dialect holds the differences between the daemons that speak LXD's API.
type Dialect struct {
	// Name is the daemon's name in messages. Unit is the systemd unit that
	// starts the daemon. Command is its command line client.
	Name, Unit, Command string
	// Type is the container type. It is also the prefix of references to the
	// daemon's own images, e.g. lxd:ALIAS, and appears in keys of hostler.yaml.
	Type string
	// headers is the prefix of the names of HTTP headers that describe an
	// image.
	headers string
	// exitCodes maps the message of a failed operation to the exit code of a
	// command that could not be run. It is empty for LXD, which sends the
	// codes.
	exitCodes map[string]int
	// gone is the prefix of the error that the daemon answers after an
	// instance's init ended, until it notices the end. It is empty for LXD,
	// which answers that the instance is stopping.
	gone string
	// waitFails is true if the answer to a wait for a failed operation is the
	// operation's error instead of the operation.
	waitFails bool
}

// The dialects of the supported daemons.
var (
	LXD = Dialect{Name: "LXD", Unit: "lxd", Command: "lxc", Type: "lxd", headers: "X-LXD-"}
	// Incus is tested with version 6.0.4.
	Incus = Dialect{
		Name: "Incus", Unit: "incus", Command: "incus", Type: "incus", headers: "X-Incus-",
		exitCodes: map[string]int{"Command not found": containerbroker.ExitNotFound, "Command not executable": containerbroker.ExitNotExecutable},
		gone:      "Invalid PID", waitFails: true,
	}
)

// died reports whether an error message means that an instance's init has ended
// and the daemon has not noticed yet.
func (l Dialect) died(message string) bool {
	return l.gone != "" && strings.HasPrefix(message, l.gone)
}

// complete reads an instance of which a listing has only the name. Incus lists
// an instance in this way, without its stamp, if its init has just ended.
func (d *Driver) complete(c *client, f *api.InstanceFull) (err error) {
	f.Instance, err = d.read(c, f.Name)
	if statusOf(f.StatusCode) == containerbroker.StatusRunning {
		f.StatusCode = api.Stopping
	}
	return err
}

// settled reads an instance. If the instance's init has just ended, settled
// waits until the daemon has noticed, because until then Incus answers that the
// instance runs. settled reads the state only of an instance that runs, because
// Incus answers as if the init had ended while the instance starts or stops.
func (d *Driver) settled(c *client, name string) (api.Instance, error) {
	found, err := d.read(c, name)
	if err != nil || d.opts.Dialect.gone == "" || statusOf(found.StatusCode) != containerbroker.StatusRunning {
		return found, err
	}
	full, err := d.readState(c, name)
	return full.Instance, err
}

// readState reads an instance with its state. It waits like settled().
func (d *Driver) readState(c *client, name string) (found api.InstanceFull, err error) {
	for deadline := time.Now().Add(deathTimeout); ; {
		_, err = c.get(instancePath(name)+"?recursion=1", &found)
		if err == nil || !d.opts.Dialect.died(err.Error()) {
			return found, err
		}
		if time.Now().After(deadline) {
			return found, fault.New(fault.Transient, "%s has not noticed that it ended", c.dialect.Name)
		}
		if err := pause.For(c.ctx, deathLook); err != nil {
			return found, err
		}
	}
}
