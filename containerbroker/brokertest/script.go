package brokertest

// conformanceScript is a shell command that every guest with /bin/sh can run:
// it writes to both outputs and exits with 7.
const conformanceScript = "/bin/sh -c echo to stdout; echo to stderr >&2; exit 7"
