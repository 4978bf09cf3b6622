package hostreport

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"hostler/agent/client"
	"hostler/agent/containersetup"
	"hostler/agent/networkprovisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/hostnet"
	"hostler/hostnet/bridgepolicy"
	"hostler/initialisers"
)

// lowSpace is the free space below which doctor warns, in bytes. This much
// space suffices to build an image and to copy a store.
const lowSpace = 2 << 30

// readiness checks for at most reportTimeout whether the host can run machines
// of a type. It returns the result, message and mend of doctor's check. A type
// that this host cannot run is an error only if it is used. A type that is not
// set up is "ok" only if it has no machines.
func readiness(ctx context.Context, t spec.ContainerType, init initialisers.Initialiser, u use) (result, message, mend string) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	advice := ""
	if a, advises := init.(initialisers.Adviser); advises && a.Advice() != "" {
		advice = "; " + a.Advice()
	}
	if ok, why := init.Supported(ctx); !ok {
		if !u.machines && !u.ready && ctx.Err() == nil {
			return "ok", notAvailable + why, ""
		}
		return "error", "this host cannot run " + string(t) + " machines: " + why, "fix the named cause, then run `hostler doctor` again"
	}
	ok, why := init.Satisfied(ctx)
	switch {
	case ok:
		message = "is set up" + advice
		if d, describes := init.(initialisers.Describer); describes {
			how, mend := d.Guests()
			if how != "" {
				message += "; " + how
			}
			if mend != "" {
				return "warning", message, mend
			}
		}
		return "ok", message, ""
	case ctx.Err() != nil:
		return "error", fmt.Sprintf("no answer within %s: %s", reportTimeout, why), "look whether its daemon hangs, and restart it"
	}
	status, preparing := u.status, "is being set up: "+cmp.Or(u.status.Message, why)
	if u.machines && (status.State == containersetup.StateWaiting || status.State == containersetup.StateInitialising) {
		return "warning", preparing, "" // its daemon may not answer yet
	}
	if p, daemon := init.(initialisers.Pinger); daemon {
		if message, mend = p.Silent(ctx); message != "" {
			return "error", message, mend
		}
	}
	switch {
	case !u.machines:
	case status.State == containersetup.StateReady:
		// A warning, because the machines may well run without the part.
		return "warning", "was set up, and now lacks a part: " + why, "set it up again: systemctl restart hostlerd"
	case status.State != containersetup.StateError:
		return "warning", preparing, ""
	default:
		message = status.Message
		if next := status.Attempts.NextRetry; next != nil {
			message += "; the next try is at " + next.UTC().Format(time.RFC3339)
		}
		return "error", message, "mend the named cause; `hostler retry type/" + string(t) + "` tries at once"
	}
	return "ok", "not installed yet; will be set up with the first " + string(t) + " machine (" + why + ")" + advice, ""
}

// notAvailable begins doctor's message about an unused type that this host
// cannot run.
const notAvailable = "not available here: "

// use is the use of a container type: machines is true if a machine of the type
// is recorded, ready if the type was ready at some time.
type use struct {
	machines, ready bool
	status          spec.TypeStatus
}

// uses returns the uses of the types. An unreadable record counts for no type;
// its worker reports it.
func uses(objects []state.Object) map[spec.ContainerType]use {
	all := map[spec.ContainerType]use{}
	for _, o := range objects {
		switch o.Kind {
		case spec.KindMachine:
			var r spec.MachineRecord
			if o.Decode(&r, nil) == nil {
				u := all[r.Machine.Type]
				u.machines = true
				all[r.Machine.Type] = u
			}
		case spec.KindContainerType:
			u := all[spec.ContainerType(o.Name)]
			if o.Decode(nil, &u.status) == nil {
				u.ready = u.status.Supported != nil && *u.status.Supported
				all[spec.ContainerType(o.Name)] = u
			}
		}
	}
	return all
}

// Doctor implements api.Host. It changes nothing. It asks the package manager
// only whether it offers the packages of an absent hypervisor.
func (r Reporter) Doctor(ctx context.Context) ([]client.Check, error) {
	var checks []client.Check
	add := func(name, result, message, mend string) {
		checks = append(checks, client.Check{Name: name, Result: result, Message: message, Mend: mend})
	}
	objects, _, err := r.Store.List(ctx, spec.KindMachine, spec.KindContainerType)
	if err != nil {
		add("machines", "error", err.Error(), "look at the agent's log")
	}
	used := uses(objects)
	for _, t := range r.Types {
		name := "type " + string(t)
		result, message, mend := readiness(ctx, t, r.Initialiser(t), used[t])
		add(name, result, message, mend)
	}
	checks = append(checks, userNamespaces(r.Paths, objects)...)
	checks = append(checks, cgroupControllers(r.Paths, objects)...)
	for _, d := range r.disk(ctx) {
		name := "space " + d.Path
		if d.Path == r.Paths.StateDir && d.Free < lowSpace {
			add(name, "warning", fmt.Sprintf("%d MiB are free", d.Free>>20), "free space: images and the store are kept here")
			continue
		}
		add(name, "ok", fmt.Sprintf("%d MiB are free", d.Free>>20), "")
	}
	checks = append(checks, r.networkChecks(ctx)...)
	seen, err := r.instances(ctx)
	if err != nil {
		message, mend := err.Error(), "look whether the hypervisor's daemon runs"
		if short := containerbroker.Unanswered(err); short != "" {
			message, mend = short, containerbroker.Remedy(err)
		}
		add("instances", "error", message, mend)
	} else if len(seen.unknown) > 0 {
		names := make([]string, len(seen.unknown))
		for i, u := range seen.unknown {
			names[i] = u.Type + "/" + u.Name
		}
		add("unknown instances", "warning", strings.Join(names, ", ")+" have this agent's stamp and no declaration",
			"take over an instance with `hostler adopt`, or delete all with `hostler harvest unknown`")
	}
	if len(seen.moved) > 0 {
		names := make([]string, len(seen.moved))
		for i, m := range seen.moved {
			names[i] = fmt.Sprintf("%s/%s (made as %s)", m.Type, m.Name, m.MadeAs)
		}
		add("moved instances", "warning", strings.Join(names, ", ")+" have this agent's stamp and were made for machines of another container type; no harvest deletes them",
			"let the machine of that name go with `hostler release NAME` (its own instance stays), then take the moved instance over with `hostler adopt TYPE/NAME`; "+
				"or delete it with the hypervisor's tools")
	}
	if len(seen.another) > 0 {
		add("instances of another store", "warning", strings.Join(seen.another, ", ")+" have this agent's namespace and the stamp of another store",
			"give the two agents a namespace each; where there is no other agent, take them over with `hostler adopt`")
	}
	for _, text := range r.Notices(ctx) {
		if strings.HasPrefix(text, spec.KindNetwork+"/") {
			continue // networkChecks() reports the notices of networks
		}
		add("notice", "warning", text, "see `hostler status`")
	}
	return checks, nil
}

// networkChecks returns doctor's checks of the networks.
func (r Reporter) networkChecks(ctx context.Context) []client.Check {
	objects, _, err := r.Store.List(ctx, spec.KindNetwork)
	if err != nil {
		return []client.Check{{Name: "networks", Result: "error", Message: err.Error(), Mend: "look at the agent's log"}}
	}
	checks := r.provided(ctx)
	for _, o := range objects {
		var status spec.NetworkStatus
		if len(o.Status) > 0 && json.Unmarshal(o.Status, &status) != nil {
			continue // the networks worker reports an unreadable status
		}
		name := "network " + o.Name
		fine := true
		for _, c := range status.Conditions {
			if !c.Status {
				fine = false
				checks = append(checks, client.Check{Name: name, Result: "warning", Message: c.Message, Mend: "see `hostler show network/" + o.Name + "`"})
			}
		}
		if status.State == "error" {
			fine = false
			checks = append(checks, client.Check{Name: name, Result: "error", Message: status.Message, Mend: "see `hostler show network/" + o.Name + "`"})
		}
		if fine {
			checks = append(checks, client.Check{Name: name, Result: "ok", Message: "is " + status.State})
		}
	}
	return checks
}

// provided checks whether machines can use the host's own network. It returns
// nil unless the configuration gives machines the host's network.
func (r Reporter) provided(ctx context.Context) []client.Check {
	if !r.Config().Types.UseProvidedNetworks() {
		return nil
	}
	check := func(result, message, mend string) []client.Check {
		return []client.Check{{Name: "network-method provider", Result: result, Message: message, Mend: mend}}
	}
	links, err := hostnet.Open(hostnet.Options{})
	if err != nil {
		return check("error", err.Error(), "run the agent as root")
	}
	defer links.Close()
	observed, err := links.Observe(ctx)
	if err != nil {
		return check("error", err.Error(), "run `hostler doctor` again")
	}
	switch declare, join, err := bridgepolicy.Provide(observed, r.Config().Namespace, networkprovisioner.LocalBridges()); {
	case err != nil:
		return check("warning", err.Error(), "declare a network and name it in the machines' `networks`")
	case declare != "":
		return check("warning", "no declared bridge leads to the host's own network, and machines without `networks` have none",
			"declare `"+declare+"` and name it in the machines' `networks`")
	default:
		return check("ok", "machines can be on the host's own network: "+join, "")
	}
}
