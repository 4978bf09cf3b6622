package main

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// No goroutine but main's runs on the first thread.
func TestTheFirstThreadIsMains(t *testing.T) {
	threads := make(chan int)
	for range 1000 {
		go func() { threads <- unix.Gettid() }()
	}
	for range 1000 {
		if <-threads == os.Getpid() {
			t.Fatal("a goroutine ran on the first thread")
		}
	}
}
