//go:build integration

package vm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hostler/tests/harness"
)

// settleLimit bounds the wait for everything to be as declared.
const settleLimit = 8 * time.Minute

// instance is what the daemon says of one that bears the stamp of the agent.
type instance struct {
	UID, Token string
	Running    bool
	PID        int
	Memory     string
}

// same says whether both are one instance, whatever process runs it.
func (i instance) same(as instance) bool { return i.UID == as.UID && i.Token == as.Token }

// look asks the agent, the daemon and the planner at once, each for itself, since a
// command costs much on an emulated processor.
const look = `hostler get machines -o json && echo && echo ==== && %s && echo && echo ==== && { hostler plan -q %s; echo "exit $?"; }`

// state is the answer of all three.
type state struct {
	machines  map[string]machineRow
	instances map[string]instance
	plan      string
}

type machineRow struct {
	Name, Status, UID, Message string
	Addresses                  []string
	Observed                   bool
}

// look returns the present state and the steps that these declarations need.
func (m *machine) look(files ...string) (s state, err error) {
	out, err := m.guest.run(fmt.Sprintf(look, m.base.daemon.instances(), "-f "+strings.Join(files, " -f ")), 2*time.Minute)
	if err != nil {
		return s, err
	}
	parts := strings.Split(out, "====")
	if len(parts) != 3 {
		return s, fmt.Errorf("the machine answers %q", out)
	}
	var rows []machineRow
	var list []struct {
		Name, Status string
		Config       map[string]string
		State        struct{ PID int }
	}
	if err := errors.Join(json.Unmarshal([]byte(parts[0]), &rows), json.Unmarshal([]byte(parts[1]), &list)); err != nil {
		return s, fmt.Errorf("%w in %q", err, out)
	}
	s = state{map[string]machineRow{}, map[string]instance{}, strings.TrimSpace(parts[2])}
	for _, row := range rows {
		s.machines[row.Name] = row
	}
	for _, i := range list {
		// An instance without a stamp counts too: the disk began with none.
		s.instances[i.Name] = instance{i.Config["user.hostler.uid"], i.Config["user.hostler.token"], strings.EqualFold(i.Status, "running"), i.State.PID, i.Config["limits.memory"]}
	}
	return s, nil
}

// missing says what of these machines is not as declared: each is to be known,
// running, and exactly one instance with its own stamp; nothing else is to be
// there, and nothing to be planned.
func (s state) missing(names ...string) error {
	slices.Sort(names)
	if got := slices.Sorted(maps.Keys(s.machines)); !slices.Equal(got, names) {
		return fmt.Errorf("the agent has the machines %v, not %v", got, names)
	}
	if got := slices.Sorted(maps.Keys(s.instances)); !slices.Equal(got, names) {
		return fmt.Errorf("the host has the instances %v, not %v", got, names)
	}
	tokens := map[string]string{}
	for name, i := range s.instances {
		row := s.machines[name]
		if row.Status != "running" || !i.Running || i.PID == 0 {
			return fmt.Errorf("%s is %s (%s); the instance: %+v", name, row.Status, row.Message, i)
		}
		if i.UID != row.UID || i.Token == "" || tokens[i.Token] != "" {
			return fmt.Errorf("%s has the uid %s, its instance %+v, the token also being that of %q", name, row.UID, i, tokens[i.Token])
		}
		tokens[i.Token] = name
	}
	if s.plan != "exit 0" {
		return fmt.Errorf("the plan is not empty: %s", s.plan)
	}
	return nil
}

// settled waits until exactly these machines are as the files declare them.
func (m *machine) settled(files []string, names ...string) map[string]instance {
	m.Helper()
	var s state
	harness.Wait(m, "everything as declared", settleLimit, func() (err error) {
		if s, err = m.look(files...); err != nil {
			return err
		}
		return s.missing(names...)
	})
	return s.instances
}

// outcome prints what a scenario showed; the suite passes such lines on.
func (m *machine) outcome(format string, args ...any) {
	m.Helper()
	if !m.Failed() {
		m.Logf("outcome: "+format, args...)
	}
}

// write makes a file in the machine.
func (m *machine) write(path, content string) {
	m.Helper()
	m.sh("cat >" + path + " <<'END-OF-FILE'\n" + content + "END-OF-FILE\n")
}
