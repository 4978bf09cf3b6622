package rpc

import "hostler/internal/oneline"

// maxMessage bounds, in bytes, what of a foreign message is passed on.
const maxMessage = 1024

// Clean makes text from libvirt or a guest fit for a log or a terminal.
func Clean(text string, limit int) string { return oneline.Clean(text, limit) }
