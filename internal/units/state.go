package units

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// State is the state of a unit, in systemd's terms.
type State struct {
	name, load, active, sub, result string
	// since is the time of the last change; zero: no change in this boot.
	since time.Time
}

// systemdTimeout bounds a request to systemd.
const systemdTimeout = 10 * time.Second

func read(ctx context.Context, unit string) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	conn, err := Connect(ctx)
	if err != nil {
		return State{}, fmt.Errorf("cannot look at %s: %w", unit, err)
	}
	defer conn.Close()
	p, err := conn.GetAllPropertiesContext(ctx, unit)
	if err != nil {
		return State{}, fmt.Errorf("cannot look at %s: %w", unit, err)
	}
	return stateOf(unit, p), nil
}

func stateOf(unit string, properties map[string]any) State {
	word := func(name string) string { s, _ := properties[name].(string); return s }
	s := State{name: unit, load: word("LoadState"), active: word("ActiveState"), sub: word("SubState"), result: word("Result")}
	if micros, ok := properties["StateChangeTimestamp"].(uint64); ok && micros > 0 {
		s.since = time.UnixMicro(int64(micros))
	}
	return s
}

// resetFailed resets a unit that systemd gave up, so that it can start again.
func resetFailed(ctx context.Context, unit string) error {
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	conn, err := Connect(ctx)
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", unit, err)
	}
	defer conn.Close()
	if err := conn.ResetFailedUnitContext(ctx, unit); err != nil {
		return fmt.Errorf("cannot start %s, which failed: %w", unit, err)
	}
	return nil
}

// ended says that the unit does not run and that systemd will not start it by
// itself.
func (s State) ended() bool { return s.active == "inactive" || s.active == "failed" }

// masked says that systemd refuses to start the unit. A running unit may be
// masked too, which does not count.
func (s State) masked() bool { return s.ended() && s.load == "masked" }

// down returns the reason why the unit stays down, or "".
func (s State) down() string {
	switch {
	case !s.ended():
		return ""
	case s.masked():
		return fmt.Sprintf("the unit %s is masked: `systemctl unmask %s` lets it be started again", s.name, s.name)
	case s.load == "not-found":
		return fmt.Sprintf("the unit %s is not there: install the package hostler again", s.name)
	case s.active == "failed":
		return fmt.Sprintf("the unit %s failed (%s): see `journalctl -u %s`", s.name, s.result, s.name)
	}
	return fmt.Sprintf("the unit %s is stopped", s.name)
}

// Row describes the unit in the host's status.
type Row struct {
	State, Message string
	// Since is the time of the last change; zero: no change in this boot.
	Since time.Time
}

// Row returns the unit's row.
func (s State) Row() Row {
	row := Row{State: "running", Message: "the unit " + s.name, Since: s.since}
	switch {
	case strings.HasPrefix(s.sub, "auto-restart"):
		row.State = "failed"
		row.Message = fmt.Sprintf("the unit %s ended (%s) and is started again: see `journalctl -u %s`", s.name, s.result, s.name)
	case s.masked():
		row.State, row.Message = "masked", s.down()
	case s.active == "failed" || s.ended() && s.load == "not-found":
		row.State, row.Message = "failed", s.down()
	case s.ended():
		row.State = "stopped"
	case s.sub != "running":
		row.Message += ": " + s.sub
	}
	return row
}
