package storage

import (
	"context"
	"sync"

	"hostler/internal/fault"
)

// Each works on the items in sequence. Once ctx has ended, the remaining items
// get ctx's error.
func Each[P, T any](ctx context.Context, items []P, one func(context.Context, P) (T, error)) []Result[T] {
	results := make([]Result[T], len(items))
	for i, item := range items {
		if results[i].Err = ctx.Err(); results[i].Err == nil {
			results[i].Value, results[i].Err = one(ctx, item)
		}
	}
	return results
}

// EachError does the same as Each, for calls that return only an error.
func EachError[P any](ctx context.Context, items []P, one func(context.Context, P) error) []error {
	errs := make([]error, len(items))
	for i, item := range items {
		if errs[i] = ctx.Err(); errs[i] == nil {
			errs[i] = one(ctx, item)
		}
	}
	return errs
}

// ref identifies the object of a call; parameters embed their Ref.
func (r Ref) ref() Ref { return r }

type referring interface{ ref() Ref }

// Explain returns a function that calls one and adds to its errors what failed
// on which object, e.g. "cannot attach the volume data: …" if what is "attach
// the volume".
func Explain[P referring, T any](what string, one func(context.Context, P) (T, error)) func(context.Context, P) (T, error) {
	return func(ctx context.Context, p P) (T, error) {
		v, err := one(ctx, p)
		return v, fault.Explain(err, "cannot %s %s", what, p.ref().ID)
	}
}

// ExplainError does the same as Explain, for calls that return only an error.
func ExplainError[P referring](what string, one func(context.Context, P) error) func(context.Context, P) error {
	return func(ctx context.Context, p P) error {
		return fault.Explain(one(ctx, p), "cannot %s %s", what, p.ref().ID)
	}
}

// Described returns a function that changes an object and returns the object's
// description. It adds what to errors of the change, as ExplainError does.
func Described[P referring, T any](what string, change func(context.Context, P) error, describe func(context.Context, Ref) (T, error)) func(context.Context, P) (T, error) {
	change = ExplainError(what, change)
	return func(ctx context.Context, p P) (T, error) {
		if err := change(ctx, p); err != nil {
			var none T
			return none, err
		}
		return describe(ctx, p.ref())
	}
}

// atOnce is the number of items that Several works on in parallel. It exceeds
// the processors of a small host, because the kernel lets e.g. the setup of a
// loop device and a sync wait, and the waits of several items overlap.
const atOnce = 16

// Several does the same as Each, but works on up to atOnce items in parallel.
// The items must be independent.
func Several[P, T any](ctx context.Context, items []P, one func(context.Context, P) (T, error)) []Result[T] {
	results := make([]Result[T], len(items))
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, item := range items {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if results[i].Err = ctx.Err(); results[i].Err == nil {
				results[i].Value, results[i].Err = one(ctx, item)
			}
		})
	}
	all.Wait()
	return results
}
