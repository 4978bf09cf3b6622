package cli

import "github.com/spf13/cobra"

// The groups of `hostler --help`.
const (
	groupDeclare = "declare"
	groupLook    = "look"
	groupGuest   = "guest"
	groupHost    = "host"
	groupMore    = "more"
)

func groups() []*cobra.Group {
	return []*cobra.Group{
		{ID: groupDeclare, Title: "Declare:"},
		{ID: groupLook, Title: "Look:"},
		{ID: groupGuest, Title: "Machines:"},
		{ID: groupHost, Title: "This host:"},
		{ID: groupMore, Title: "More:"},
	}
}

// commands lists every command in the order of the help.
func (a *app) commands() []*cobra.Command {
	in := func(group string, commands ...*cobra.Command) []*cobra.Command {
		for _, c := range commands {
			c.GroupID = group
			c.Flags().SortFlags = false
			c.DisableFlagsInUseLine = true
		}
		return commands
	}
	var all []*cobra.Command
	all = append(all, in(groupDeclare,
		a.applyCommand(), a.planCommand(), a.validateCommand(), a.allowCommand(), a.deleteCommand(), a.waitCommand(), a.adoptCommand(),
		a.releaseCommand(), a.exportCommand(), a.schemaCommand(), a.userDataCommand())...)
	all = append(all, in(groupLook,
		a.getCommand(), a.showCommand(), a.statusCommand(), a.eventsCommand(), a.analyzeCommand())...)
	all = append(all, in(groupGuest,
		a.execCommand(), a.consoleCommand(), a.logsCommand(),
		a.powerCommand("start", "Start machines", "Start machines that were stopped by hand or are declared `running: false`, until their\ndeclaration is applied again."),
		a.powerCommand("stop", "Stop machines", "Stop machines, until they are started or their declaration is applied again."),
		a.powerCommand("restart", "Restart machines", "Stop machines and start them again."),
		a.retryCommand())...)
	all = append(all, in(groupHost,
		a.doctorCommand(), a.collectCommand(), a.harvestCommand(), a.migrateCommand(), a.imageCommand(), a.volumeCommand(),
		a.confirmCommand(), a.revertCommand(), a.cleanCommand())...)
	all = append(all, in(groupMore, a.versionCommand(), a.completionCommand())...)
	return append(all, a.internalCommand())
}
