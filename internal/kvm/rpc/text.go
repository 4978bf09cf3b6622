package rpc

import "hostler/internal/oneline"

// maxMessage bounds, in bytes, a foreign message that is passed on.
const maxMessage = 1024

// Clean makes text from libvirt or a guest safe for a log or a terminal.
func Clean(text string, limit int) string { return oneline.Clean(text, limit) }
