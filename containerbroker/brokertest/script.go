package brokertest

// conformanceScript is a shell command for every guest with /bin/sh: it writes
// to both outputs and exits with 7.
const conformanceScript = "/bin/sh -c echo to stdout; echo to stderr >&2; exit 7"

// TerminalScript prints a terminal's size, and again once the size has changed.
// The sleep is for hypervisors that drop the last output of a command that ends
// right after it.
const TerminalScript = `s=$(stty size); echo $s; until [ "$(stty size)" != "$s" ]; do sleep 0.1; done; stty size; sleep 1`
