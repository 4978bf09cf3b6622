//go:build long

package state_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestEveryFlippedByteOfTheFirstPages(t *testing.T) {
	w := smallWorld(t)
	dir := w.put(t)
	for at := range 4 * pageSize {
		w.flip(t, dir, at, 0xff)
	}
}

func TestThousandRandomFlips(t *testing.T) {
	w := smallWorld(t)
	dir := w.put(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		w.flip(t, dir, rnd.IntN(len(w.files["state.db"])), byte(1+rnd.IntN(255)))
	}
}

func TestTruncationAtEverySector(t *testing.T) {
	w := smallWorld(t)
	dir := w.put(t)
	db := w.files["state.db"]
	for at := 0; at < len(db); at += 512 {
		w.reset(t, dir, db[:at])
		w.survive(t, fmt.Sprintf("cut at %d", at), dir)
	}
}
