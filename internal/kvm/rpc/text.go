package rpc

import "hostler/internal/oneline"

// maxMessage is the maximum length in bytes of a foreign message that is passed
// on.
const maxMessage = 1024

// Clean makes text from libvirt or a guest safe for a log or a terminal; see
// oneline.Clean.
func Clean(text string, limit int) string { return oneline.Clean(text, limit) }
