// Package parthandler holds cloud-init's handler of hostler's declarations, a
// Python program. The package hostler installs it, and `hostler user-data` puts
// it into user-data.
package parthandler

import _ "embed"

// Type is the content type of the parts that the handler takes.
const Type = "text/hostler-config"

// Source is the text of the handler.
//
//go:embed hostler_part_handler.py
var Source string
