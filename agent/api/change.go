package api

import (
	"context"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

func (s *Server) remove(ctx context.Context, i *in[client.DeleteRequest]) (*out[client.DeleteAnswer], error) {
	outcomes, err := s.Delete(ctx, i.Body.Objects...)
	if err != nil {
		return nil, err
	}
	return &out[client.DeleteAnswer]{client.DeleteAnswer{Outcomes: outcomes}}, nil
}

// Delete removes objects (KIND/NAME) in one atomic write. An object that cannot
// be removed gets an error and does not prevent the removal of the others.
func (s *Server) Delete(ctx context.Context, objects ...string) (outcomes []client.Outcome, err error) {
	err = s.rewrite(ctx, false, func(w *declaredState) error {
		outcomes = w.removeAll(objects)
		w.mergeAlone()
		_, err := w.updateRecords(nil, removal{partial: s.unread(w) != ""})
		return err
	})
	return outcomes, err
}

// powerInput names a machine and the power action.
type powerInput struct {
	Name string `path:"name" maxLength:"253"`
	Body client.PowerRequest
}

func (s *Server) power(ctx context.Context, i *powerInput) (*struct{}, error) {
	return nil, s.rewrite(ctx, false, func(w *declaredState) error { return w.setPower(i.Name, i.Body.Action) })
}

func (s *Server) retry(ctx context.Context, i *in[client.RetryRequest]) (*struct{}, error) {
	id, err := parseObject(i.Body.Object)
	if err != nil {
		return nil, err
	}
	if i.Body.Force && id.Kind != spec.KindVolume && id.Kind != spec.KindFilesystem {
		return nil, fault.New(fault.Invalid, "cannot force %s: --force is for volumes and filesystems that are in use", raw.Clip(i.Body.Object, 128))
	}
	switch id.Kind {
	case spec.KindMachine:
		return nil, s.rewrite(ctx, false, func(w *declaredState) error { return w.retry(id.Name) })
	case spec.KindNetwork, spec.KindVolume, spec.KindFilesystem:
		return nil, s.rewrite(ctx, false, func(w *declaredState) error { return w.retryDependency(id, i.Body.Force) })
	case spec.KindContainerType:
		return nil, s.retryType(ctx, id)
	default:
		return nil, fault.New(fault.Invalid, "cannot retry %s: machine, network, volume, filesystem and type/NAME can be retried", raw.Clip(i.Body.Object, 128))
	}
}

// imageCame requests a new attempt for machines that could not be created for
// lack of the image. A failure is only logged, since the image itself is fine:
// each machine has a next retry of its own.
func (s *Server) imageCame(ctx context.Context, reference string) {
	err := s.rewrite(ctx, false, func(w *declaredState) error {
		for _, k := range w.machines {
			if k.record.Machine.Image == reference && k.lacksInstance() {
				k.record.RetryRequest++
			}
		}
		return nil
	})
	if err != nil {
		s.log.Warn("The machines that lacked an image cannot be retried.", "image", raw.Clip(reference, 128), "error", err)
	}
}

// lacksInstance reports that creating the machine's instance failed for a
// reason that needs no operator.
func (k *machineObject) lacksInstance() bool {
	status, known := k.status()
	kind := fault.Kind(status.Attempts.ErrorKind)
	return known && k.life == state.Alive && status.Instance == nil && kind != "" && kind != fault.NeedsOperator
}

// retryType counts the request in the type's spec, as for machines.
func (s *Server) retryType(ctx context.Context, id state.ID) error {
	return s.updateRecord(ctx, id, func(o *state.Object) (any, error) {
		if o == nil {
			return nil, fault.New(fault.NotFound, "type/%s is not there", raw.Clip(id.Name, 64))
		}
		var rec spec.TypeRecord
		if err := decodeObject(*o, &rec, nil); err != nil {
			return nil, err
		}
		rec.RetryRequest++
		return rec, nil
	})
}

// adopt writes the machine's record first and stamps the instance afterwards.
// After a crash in between, an unstamped instance with a record only waits,
// whereas a stamped instance without a record would count as an orphan.
func (s *Server) adopt(ctx context.Context, i *in[client.AdoptRequest]) (*out[client.Machine], error) {
	t := spec.ContainerType(i.Body.Type)
	a, err := s.o.Service.Adopter.Inspect(ctx, t, i.Body.Instance)
	if err != nil {
		return nil, err
	}
	if err := s.rewrite(ctx, false, func(w *declaredState) error {
		if err := w.adopt(a); err != nil {
			return err
		}
		if err := w.checkCount(); err != nil {
			return fault.New(fault.Invalid, "cannot adopt %s: %w", a.Name, err)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	o, err := s.o.Backend.Get(ctx, state.ID{Kind: spec.KindMachine, Name: a.Name})
	if err != nil {
		return nil, err
	}
	if err := s.o.Service.Adopter.Stamp(ctx, t, a, o); err != nil {
		return nil, err
	}
	// The provisioner may have found the unstamped instance and given up on it.
	if err := s.rewrite(ctx, false, func(w *declaredState) error { return w.retry(a.Name) }); err != nil {
		return nil, err
	}
	if o, err = s.o.Backend.Get(ctx, o.ID); err != nil {
		return nil, err
	}
	row, err := machineRow(o)
	if err != nil {
		return nil, err
	}
	return &out[client.Machine]{row}, nil
}

func (s *Server) release(ctx context.Context, p *named) (*struct{}, error) {
	return nil, s.rewrite(ctx, false, func(w *declaredState) error {
		if err := w.removeMachine(p.Name, true); err != nil {
			return err
		}
		w.mergeAlone()
		_, err := w.updateRecords(nil, removal{partial: s.unread(w) != ""})
		return err
	})
}

func (s *Server) deleteImage(ctx context.Context, i *in[client.ImageRequest]) (*struct{}, error) {
	return nil, s.o.Service.Images.Delete(ctx, i.Body.Reference)
}
