package brokertest

// conformanceScript is a shell command that every guest with /bin/sh can run:
// it writes to both outputs and exits with 7.
const conformanceScript = "/bin/sh -c echo to stdout; echo to stderr >&2; exit 7"

// TerminalScript tells a terminal's size, and again once it has changed. The
// sleep is for hypervisors that drop what a command says right before its end.
const TerminalScript = `s=$(stty size); echo $s; until [ "$(stty size)" != "$s" ]; do sleep 0.1; done; stty size; sleep 1`
