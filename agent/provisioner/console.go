package provisioner

import (
	"fmt"

	"hostler/containerbroker"
)

// withConsole appends the console lines of an error to its text if open is
// true. All readers of the API see the text. If they must not see consoles,
// withConsole appends the command that shows the console to permitted users.
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
