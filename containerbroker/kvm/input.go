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
	// maxInput bounds, in bytes, the input of a command: the guest's agent
	// takes it in a single request and fails with much more.
	maxInput = 32 << 10
	// inputTimeout is how long Exec waits for the first byte of a command's
	// input.
	inputTimeout = 3 * time.Second
)

// input is the standard input of a command.
type input struct {
	data []byte
	// first receives the result of the first read if the input was silent for
	// inputTimeout.
	first <-chan error
}

// readInput reads the whole input of a command. Input that stays silent for
// inputTimeout without ending counts as no input, e.g. an idle terminal or the
// open input of a remote shell: the command would otherwise wait for ever.
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

// late reports whether input arrived after the command was started without any.
func (i input) late() bool {
	select {
	case err := <-i.first:
		return err == nil
	default:
		return false
	}
}
