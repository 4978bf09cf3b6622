// Package parthandler holds cloud-init's handler of hostler's declarations, a
// Python program. The package hostler installs it, and `hostler user-data` puts
// it into user-data.
package parthandler

import (
	_ "embed"
	"regexp"
	"strings"
)

// Type is the content type of the parts that the handler takes.
const Type = "text/hostler-config"

// Source is the text of the handler.
//
//go:embed hostler_part_handler.py
var Source string

var otherCharacters = regexp.MustCompile("[^a-z0-9]+")

// File returns the name that the handler gives to the file of a declaration, as
// name_of does.
func File(declaration string) string {
	stem := strings.Trim(otherCharacters.ReplaceAllString(strings.ToLower(declaration), "-"), "-")
	return "cloud-init-" + strings.Trim(stem[:min(50, len(stem))], "-") + ".yaml"
}
