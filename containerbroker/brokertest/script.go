package brokertest

// conformanceScript is a command for guests with /bin/sh. It writes to both
// stdout and stderr and exits with code 7.
const conformanceScript = "/bin/sh -c echo to stdout; echo to stderr >&2; exit 7"

// TerminalScript prints a terminal's size, and prints it again once it has
// changed. The sleep at the end is there because some hypervisors drop the last
// output of a command that ends right after that output.
const TerminalScript = `s=$(stty size); echo $s; until [ "$(stty size)" != "$s" ]; do sleep 0.1; done; stty size; sleep 1`
