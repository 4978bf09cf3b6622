package agent

import (
	"context"
	"time"

	"hostler/agent/migrate"
	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/containerbroker"
)

// transferTimeout bounds the copy of an instance by a daemon.
const transferTimeout = 24 * time.Hour

// hypervisors gives migrations access to instances.
func (h *host) hypervisors() migrate.Hypervisors {
	return migrate.Hypervisors{
		Namespace: h.config().Namespace, Broker: h.broker, MadeAs: provisioner.MadeAs,
		Movable: func(ctx context.Context, t spec.ContainerType, instance string) error {
			d, err := h.drivers[t].copier(h)
			if err != nil {
				return err
			}
			return d.Movable(ctx, instance)
		},
		Transfer: func(ctx context.Context, from, to spec.ContainerType, instance string, stamp containerbroker.Stamp) error {
			source, err := h.drivers[from].copier(h)
			if err != nil {
				return err
			}
			target, err := h.drivers[to].copier(h)
			if err != nil {
				return err
			}
			return source.Transfer(ctx, target, instance, h.config().PoolOf(to), stamp)
		},
	}
}
