package agent

import (
	"context"
	"os"
	"slices"

	"hostler/agent/networkprovisioner"
	"hostler/hostnet"
	"hostler/hostnet/dhcp"
	"hostler/hostnet/firewall"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/internal/units"
	"hostler/sysctl"
)

// keepNetworks is the worker that makes the host's networks match their
// declarations.
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
		Guard: h.guard, Tools: networkTools{h}, Defaults: networkprovisioner.ConfigOf(record), Ends: h.guard.Ends(),
	}).Run(ctx)
}

// prepareNetworks marks networks that the host does not have, e.g. after a
// reboot, as pending. It runs before any machine starts on them.
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
	// dnsmasq-base contains the program alone. The package dnsmasq would also
	// start a server at every address of the host.
	return t.h.install(ctx, "the programs of networks", progress, "nftables", "dnsmasq-base")
}
