// Command hostler is the agent's command line.
package main

import (
	"os"

	"hostler/cmd/hostler/cli"
)

func main() { os.Exit(cli.Main()) }
