package api

import (
	"context"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/spec"
)

func (s *Server) migrate(ctx context.Context, i *in[client.MigrateRequest]) (*out[client.MigrateAnswer], error) {
	from, to := spec.ContainerType(i.Body.From), spec.ContainerType(i.Body.To)
	steps, err := s.o.Service.Migrator.Plan(ctx, from, to, i.Body.Machines)
	if err != nil || i.Body.DryRun {
		return answer(client.MigrateAnswer{Steps: steps}, err)
	}
	return answer(client.MigrateAnswer{Steps: steps}, s.rewrite(ctx, false, func(w *declare.State) error {
		for _, step := range steps {
			if step.Refused != "" {
				continue
			}
			m := spec.Migration{From: from, To: to, Began: s.now()}
			if err := w.BeginMigration(step.Machine, step.UID, m); err != nil {
				return err
			}
		}
		return nil
	}))
}

// SetMigration records the progress of a machine's migration.
func (s *Server) SetMigration(ctx context.Context, name, uid string, m spec.Migration) error {
	return s.rewrite(ctx, false, func(w *declare.State) error { return w.SetMigration(name, uid, m) })
}
