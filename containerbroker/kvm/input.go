package kvm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"hostler/internal/fault"
)

const (
	// maxInput bounds, in bytes, the input of a command. The guest's agent
	// takes the input in a single request and fails if it is much larger.
	maxInput = 32 << 10
	// inputTimeout is how long Exec waits for the first byte of a command's
	// input.
	inputTimeout = 3 * time.Second
)

// input is the standard input of a command.
type input struct {
	data []byte
	// first is nil if the input was read. If no input came within inputTimeout,
	// first receives the result of the read that is still waiting.
	first <-chan error
}

// readInput reads the whole input of a command. If no byte and no end comes
// within inputTimeout, e.g. from an idle terminal or the open input of a remote
// shell, the command gets no input. Otherwise it would wait for ever.
func readInput(ctx context.Context, from io.Reader) (input, error) {
	if from == nil {
		return input{}, nil
	}
	began, ended := make(chan error, 1), make(chan error, 1)
	var data []byte
	go func() {
		data = make([]byte, 4<<10)
		n, err := from.Read(data)
		data = data[:n]
		began <- err
		if err == nil {
			var more []byte
			more, err = io.ReadAll(io.LimitReader(from, maxInput+1))
			data = append(data, more...)
		}
		ended <- err
	}()
	silence := time.NewTimer(inputTimeout)
	defer silence.Stop()
	select {
	case <-silence.C:
		return input{first: began}, nil
	case <-ctx.Done():
		return input{}, ctx.Err()
	case <-began:
	}
	var err error
	select {
	case <-ctx.Done():
		return input{}, ctx.Err()
	case err = <-ended:
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return input{}, fmt.Errorf("cannot read the command's input: %w", err)
	}
	if len(data) > maxInput {
		return input{}, fault.New(fault.Invalid, "a KVM guest's agent takes at most %d KiB of input", maxInput>>10)
	}
	return input{data: data}, nil
}

// late reports whether input arrived after the command had been started without
// input.
func (i input) late() bool {
	select {
	case err := <-i.first:
		return err == nil
	default:
		return false
	}
}
