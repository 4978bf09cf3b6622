//go:build !failpoint

package failpoint

// Enabled reports whether crash points are compiled in.
const Enabled = false

// Hit does nothing in a build without the tag.
func Hit(Point) error { return nil }
