package units

import (
	"context"
	"fmt"
	"strings"
	"time"

	"hostler/internal/fault"
)

// unitState is the state of a unit, in systemd's terms.
type unitState struct {
	name, load, active, sub, result string
	// since is the time of the last change, or zero if the unit has not changed
	// since the host booted.
	since time.Time
}

// systemdTimeout bounds a request to systemd.
const systemdTimeout = 10 * time.Second

func read(ctx context.Context, unit string) (unitState, error) {
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	conn, err := connect(ctx)
	if err != nil {
		return unitState{}, fmt.Errorf("cannot look at %s: %w", unit, err)
	}
	defer conn.Close()
	p, err := conn.GetAllPropertiesContext(ctx, unit)
	if err != nil {
		return unitState{}, fmt.Errorf("cannot look at %s: %w", unit, err)
	}
	return stateOf(unit, p), nil
}

func stateOf(unit string, properties map[string]any) unitState {
	word := func(name string) string { s, _ := properties[name].(string); return s }
	s := unitState{name: unit, load: word("LoadState"), active: word("ActiveState"), sub: word("SubState"), result: word("Result")}
	if micros, ok := properties["StateChangeTimestamp"].(uint64); ok && micros > 0 {
		s.since = time.UnixMicro(int64(micros))
	}
	return s
}

// resetFailed resets a unit that systemd has given up, so that the unit can
// start again.
func resetFailed(ctx context.Context, unit string) error {
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	conn, err := connect(ctx)
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", unit, err)
	}
	defer conn.Close()
	return fault.Explain(conn.ResetFailedUnitContext(ctx, unit), "cannot start %s, which failed", unit)
}

// ended reports whether the unit does not run and systemd will not start it by
// itself.
func (s unitState) ended() bool { return s.active == "inactive" || s.active == "failed" }

// masked reports whether the unit has ended and systemd refuses to start it. A
// running unit does not count, even if its name is masked.
func (s unitState) masked() bool { return s.ended() && s.load == "masked" }

// down returns the reason why systemd will not start the unit by itself, or "".
func (s unitState) down() string {
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
	// Since is the time of the last change, or zero if the unit has not changed
	// since the host booted.
	Since time.Time
}

// Row returns the unit's row.
func (s unitState) Row() Row {
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
