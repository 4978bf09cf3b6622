package provisioner

import (
	"fmt"

	"hostler/containerbroker"
)

// tellConsole puts the console's lines that an error bears into its text where
// readers see consoles. Elsewhere it names the command that shows them to those
// who may: messages and events are for all readers.
func tellConsole(err error, machine string, open bool) error {
	lines := containerbroker.Console(err)
	switch {
	case lines == "":
		return err
	case open:
		return fmt.Errorf("%w; its console says: %s", err, lines)
	}
	return fmt.Errorf("%w; `hostler logs %s` shows its console", err, machine)
}
