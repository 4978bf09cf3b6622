package storage

import (
	"context"
	"sync"
)

// atOnce is the number of items that Several works on in parallel; most of the
// work is the kernel's and the disk's.
const atOnce = 4

// Several is Each for independent items: it works on up to atOnce items in
// parallel.
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
