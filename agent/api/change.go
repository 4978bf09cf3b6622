package api

import (
	"context"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

func (s *Server) remove(ctx context.Context, i *in[client.DeleteRequest]) (*out[client.DeleteAnswer], error) {
	outcomes, err := s.Delete(ctx, i.Body.Objects...)
	return answer(client.DeleteAnswer{Outcomes: outcomes}, err)
}

// Delete removes objects (KIND/NAME) from the declared state in one atomic
// write. An object that cannot be removed gets an error in its outcome and does
// not prevent the removal of the others.
func (s *Server) Delete(ctx context.Context, objects ...string) (outcomes []client.Outcome, err error) {
	err = s.rewrite(ctx, false, func(w *declare.State) error {
		outcomes = outcomesOf(objects, w.Delete(objects, s.unread(w)))
		return nil
	})
	return outcomes, err
}

func (s *Server) allowed(ctx context.Context, i *in[client.AllowRequest]) (*out[client.DeleteAnswer], error) {
	outcomes, err := s.Allow(ctx, i.Body.Impact, i.Body.Objects...)
	return answer(client.DeleteAnswer{Outcomes: outcomes}, err)
}

// Allow records the consent to an impact on held objects (KIND/NAME) in one
// atomic write.
func (s *Server) Allow(ctx context.Context, impact string, objects ...string) (outcomes []client.Outcome, err error) {
	err = s.rewrite(ctx, false, func(w *declare.State) error {
		outcomes = outcomesOf(objects, w.Consent(impact, objects, s.unread(w)))
		return nil
	})
	return outcomes, err
}

// outcomesOf returns the outcomes of objects from their errors. errs has an
// error or nil for each object.
func outcomesOf(objects []string, errs []error) []client.Outcome {
	outcomes := make([]client.Outcome, len(objects))
	for i, err := range errs {
		outcomes[i].Object = objects[i]
		if err != nil {
			outcomes[i].Error, outcomes[i].Kind = err.Error(), fault.KindOf(err)
		}
	}
	return outcomes
}

// powerInput names a machine and the power action.
type powerInput struct {
	Name string `path:"name" maxLength:"253"`
	Body client.PowerRequest
}

func (s *Server) power(ctx context.Context, i *powerInput) (*struct{}, error) {
	return nil, s.rewrite(ctx, false, func(w *declare.State) error { return w.SetPower(i.Name, i.Body.Action) })
}

func (s *Server) retry(ctx context.Context, i *in[client.RetryRequest]) (*struct{}, error) {
	id, err := declare.ParseObject(i.Body.Object)
	if err != nil {
		return nil, err
	}
	if i.Body.Force && id.Kind != spec.KindVolume && id.Kind != spec.KindFilesystem {
		return nil, fault.New(fault.Invalid, "cannot force %s: --force is for volumes and filesystems that are in use", fault.Clip(i.Body.Object, 128))
	}
	switch id.Kind {
	case spec.KindMachine, spec.KindNetwork, spec.KindVolume, spec.KindFilesystem:
		return nil, s.rewrite(ctx, false, func(w *declare.State) error { return w.Retry(i.Body.Object, i.Body.Force) })
	case spec.KindContainerType:
		return nil, s.set(ctx, func(w *declare.State) error { return w.RetryType(id.Name) })
	default:
		return nil, fault.New(fault.Invalid, "cannot retry %s: machine, network, volume, filesystem and type/NAME can be retried", fault.Clip(i.Body.Object, 128))
	}
}

// imageCame requests a new attempt for machines that could not be created
// because the image was missing. A failure is only logged, because each machine
// has a scheduled retry anyway.
func (s *Server) imageCame(ctx context.Context, reference string) {
	err := s.rewrite(ctx, false, func(w *declare.State) error { w.RetryImage(reference); return nil })
	if err != nil {
		s.log.Warn("The machines that lacked an image cannot be retried.", "image", fault.Clip(oneline.Address(reference), 128), "error", err)
	}
}

func (s *Server) adoptHost(ctx context.Context, _ *struct{}) (*struct{}, error) {
	return nil, s.set(ctx, func(w *declare.State) error { return w.AdoptHost() })
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
	machine := ""
	if err := s.rewrite(ctx, false, func(w *declare.State) error {
		machine = w.MachineOf(t, a.Name)
		return w.Adopt(machine, a.Machine, a.UID, a.Token)
	}); err != nil {
		return nil, err
	}
	o, err := s.o.Backend.Get(ctx, state.ID{Kind: spec.KindMachine, Name: machine})
	if err != nil {
		return nil, err
	}
	if err := s.o.Service.Adopter.Stamp(ctx, t, a, o); err != nil {
		return nil, err
	}
	// The provisioner may have recorded a failure because the instance had no
	// stamp yet, so request a new attempt.
	if err := s.rewrite(ctx, false, func(w *declare.State) error { return w.Retry(spec.KindMachine+"/"+machine, false) }); err != nil {
		return nil, err
	}
	if o, err = s.o.Backend.Get(ctx, o.ID); err != nil {
		return nil, err
	}
	return answer(machineRow(o))
}

func (s *Server) release(ctx context.Context, p *named) (*struct{}, error) {
	return nil, s.rewrite(ctx, false, func(w *declare.State) error { return w.Release(p.Name, s.unread(w)) })
}

func (s *Server) deleteImage(ctx context.Context, i *in[client.ImageRequest]) (*struct{}, error) {
	return nil, s.o.Service.Images.Delete(ctx, i.Body.Reference)
}
