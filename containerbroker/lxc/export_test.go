package lxc

import (
	"bytes"
	"errors"
	"sync/atomic"
)

// BreakNextList makes the next listing read half of the table of sockets, which
// ends within a line.
func (d *Driver) BreakNextList() {
	whole := d.table
	var broken atomic.Bool
	d.table = func() ([]byte, error) {
		text, err := whole()
		if !broken.Swap(true) {
			text = bytes.TrimSuffix(text[:len(text)/2], []byte("\n"))
		}
		return text, err
	}
}

// LoseNextCreate makes the next creation do its work and then fail.
func (d *Driver) LoseNextCreate() {
	whole := d.rename
	var lost atomic.Bool
	d.rename = func(from, to string) error {
		err := whole(from, to)
		if err == nil && !lost.Swap(true) {
			err = errors.New("the answer is lost")
		}
		return err
	}
}
