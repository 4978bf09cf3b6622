package provisioner

import (
	"fmt"

	"hostler/containerbroker"
)

// withConsole appends the console lines of an error to its text if readers see
// consoles. Otherwise it names the command that shows them to permitted users,
// because all readers see messages and events.
func withConsole(err error, machine string, open bool) error {
	lines := containerbroker.Console(err)
	switch {
	case lines == "":
		return err
	case open:
		return fmt.Errorf("%w; its console says: %s", err, lines)
	}
	return fmt.Errorf("%w; `hostler logs %s` shows its console", err, machine)
}
