package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/networkprovisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/hostnet/bridgepolicy"
	"hostler/hostnet/dhcp"
	"hostler/hostnet/firewall"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/internal/units"
	"hostler/packaging"
	"hostler/sysctl"
)

// keepNetworks is the worker that keeps the host's networks as declared.
func (h *host) keepNetworks(ctx context.Context) error {
	common := h.common("networks")
	links, err := hostnet.Open(hostnet.Options{Log: common.Logger})
	if err != nil {
		return err
	}
	defer links.Close()
	rules, err := firewall.New(h.config().Namespace, run.Host{}, common.Logger)
	if err != nil {
		return err
	}
	record, err := h.hostRecord(ctx)
	if err != nil {
		return err
	}
	eyes := h.networkEyes(links)
	eyes.Tables = func(ctx context.Context) (networkprovisioner.Tables, error) { return rules.Observe(ctx) }
	return networkprovisioner.New(common, networkprovisioner.Options{
		Eyes: eyes, Links: links, Firewall: rules, Parameters: sysctl.New(h.paths, common.Logger),
		Guard: h.guard, Tools: networkTools{h}, Defaults: networkprovisioner.ConfigOf(record), Ends: h.guardEnds,
	}).Run(ctx)
}

// prepareNetworks sets networks that are not on the host, e.g. after a reboot,
// to pending before any machine starts on them.
func (h *host) prepareNetworks(ctx context.Context) {
	links, err := hostnet.Open(hostnet.Options{})
	if err == nil {
		defer links.Close()
		err = networkprovisioner.New(h.common("networks"), networkprovisioner.Options{Links: links}).Prepare(ctx)
	}
	if err != nil && ctx.Err() == nil {
		h.logger.Warn("The host's networks cannot be looked at.", "error", err)
	}
}

func (h *host) networkEyes(links *hostnet.Host) networkprovisioner.Eyes {
	return networkprovisioner.Eyes{
		Instances: h.instanceMACs, Now: h.now,
		Host: links, Root: h.paths.Root, ServerDir: h.paths.DHCP(), Guard: h.guard, Persister: h.persister,
		Server: func(uid string) networkprovisioner.Server {
			return dhcp.New(h.paths.DHCPServer(uid), h.runner(units.DNSMasq), h.logger.With("part", "dhcp"))
		},
	}
}

// instanceMACs returns the MAC addresses of all instances of the container
// types that are set up.
func (h *host) instanceMACs(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	for t := range h.drivers {
		d, err := h.driver(t)
		if fault.Is(err, fault.NotReady) {
			continue // the type was never set up
		}
		if err != nil {
			return nil, err
		}
		instances, err := d.Broker.List(ctx, false)
		if err != nil {
			return nil, err
		}
		for _, i := range instances {
			for _, mac := range i.MACs {
				all[mac] = true
			}
		}
	}
	return all, nil
}

// networkTools finds and installs the programs that networks need.
type networkTools struct{ h *host }

// Have implements networkprovisioner.Tools.
func (t networkTools) Have(dhcp bool) bool {
	programs := []string{paths.Nft}
	if dhcp {
		programs = append(programs, paths.Dnsmasq)
	}
	return !slices.ContainsFunc(programs, func(path string) bool {
		_, err := os.Stat(t.h.paths.Host(path))
		return err != nil
	})
}

// Install implements networkprovisioner.Tools.
func (t networkTools) Install(ctx context.Context, progress func(string)) error {
	release, err := packaging.ReadRelease(t.h.paths.OSRelease())
	if err != nil {
		return err
	}
	set, err := packaging.SetFor(packaging.ForNetworks, release)
	if err != nil {
		return err
	}
	unlock, err := t.h.lock(ctx, "install the programs of networks", func(holder string) { progress("waiting for " + holder) })
	if err != nil {
		return fmt.Errorf("cannot install the programs of networks: %w", err)
	}
	defer unlock()
	return t.h.packages(t.h.config()).Install(ctx, set.Names, set.Options, progress)
}

// planNetworks plans the networks among objects. It returns the steps, and the
// objects with the networks' foreseen statuses, from which machines are
// planned.
func (p planner) planNetworks(ctx context.Context, objects []state.Object, record spec.HostRecord) ([]client.Step, []state.Object, error) {
	if !slices.ContainsFunc(objects, func(o state.Object) bool { return o.Kind == spec.KindNetwork }) {
		return nil, objects, nil
	}
	desired, plan, err := p.networkPlan(ctx, objects, record)
	if err != nil {
		return nil, nil, err
	}
	var steps []client.Step
	objects = slices.Clone(objects)
	places := map[string]int{}
	for i, o := range objects {
		if o.Kind == spec.KindNetwork {
			places[o.Name] = i
		}
	}
	for i, n := range desired.Networks {
		steps = append(steps, plan.Networks[i].Steps...)
		objects[places[n.Name]].Status = spec.Encode(plan.Networks[i].ReadyStatus(n))
	}
	return steps, objects, nil
}

// Refuse implements api.Planner. It checks only networks and machines that are
// new or changed; the status reports problems of the others.
func (p planner) Refuse(ctx context.Context, planned []declare.Planned) error {
	objects := make([]state.Object, len(planned))
	changed := map[string]bool{}
	for i, each := range planned {
		objects[i] = each.After
		kind := each.After.Kind
		if (kind == spec.KindNetwork || kind == spec.KindMachine) && each.After.Life == state.Alive && (each.Before == nil || string(each.Before.Spec) != string(each.After.Spec)) {
			changed[kind+"/"+each.After.Name] = true
		}
	}
	if len(changed) == 0 || !slices.ContainsFunc(objects, func(o state.Object) bool { return o.Kind == spec.KindNetwork }) {
		return nil
	}
	record, err := p.hostRecord(ctx)
	if err != nil {
		return err
	}
	desired, observed, policy, err := p.networkLook(ctx, objects, record)
	if err != nil {
		p.logger.Warn("Cannot check the host's network for obstacles.", "error", err)
		return nil
	}
	return networkprovisioner.Refuse(desired, observed, policy, changed)
}

func (p planner) networkPlan(ctx context.Context, objects []state.Object, record spec.HostRecord) (networkprovisioner.Desired, networkprovisioner.Plan, error) {
	desired, observed, policy, err := p.networkLook(ctx, objects, record)
	if err != nil {
		return desired, networkprovisioner.Plan{}, fmt.Errorf("cannot plan: %w", err)
	}
	return desired, networkprovisioner.Make(desired, observed, policy), nil
}

// networkLook reads the inputs of a plan of networks.
func (p planner) networkLook(ctx context.Context, objects []state.Object, record spec.HostRecord) (d networkprovisioner.Desired, o networkprovisioner.Observed, policy networkprovisioner.Policy, err error) {
	policy = networkprovisioner.ConfigOf(record)
	policy.Now = p.now()
	if d, err = networkprovisioner.Decode(objects); err != nil {
		return d, o, policy, err
	}
	links, err := hostnet.Open(hostnet.Options{})
	if err != nil {
		return d, o, policy, err
	}
	defer links.Close()
	o, err = p.networkEyes(links).Observe(ctx, d)
	return d, o, policy, err
}

// networkChecks returns doctor's checks of the networks.
func (g hostReporter) networkChecks(ctx context.Context) []client.Check {
	objects, _, err := g.store.List(ctx, spec.KindNetwork)
	if err != nil {
		return []client.Check{{Name: "networks", Result: "error", Message: err.Error(), Mend: "look at the agent's log"}}
	}
	checks := g.provided(ctx)
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

// provided checks whether machines can use the host's own network, if the
// configuration asks for that.
func (g hostReporter) provided(ctx context.Context) []client.Check {
	if !g.config().Types.UseProvidedNetworks() {
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
	switch declare, join, err := bridgepolicy.Provide(observed, g.config().Namespace, networkprovisioner.LocalBridges()); {
	case err != nil:
		return check("warning", err.Error(), "declare a network and name it in the machines' `networks`")
	case declare != "":
		return check("warning", "no declared bridge leads to the host's own network, and machines without `networks` have none",
			"declare `"+declare+"` and name it in the machines' `networks`")
	default:
		return check("ok", "machines can be on the host's own network: "+join, "")
	}
}
