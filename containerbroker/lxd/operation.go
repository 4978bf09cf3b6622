package lxd

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// operationError is a failure of an operation that LXD reported, so its outcome
// is known. If a command could not be run, code is the exit code that a shell
// would return.
type operationError struct {
	message string
	code    int
}

func (e *operationError) Error() string { return e.message }

// outcomeUnknown means that LXD no longer knows an operation. LXD forgets a
// finished operation after five seconds, and all operations when it restarts.
type outcomeUnknown struct{ id string }

func (e *outcomeUnknown) Error() string {
	return fmt.Sprintf("LXD no longer knows operation %s", e.id)
}

// wait waits until an operation is done, with the event stream or with long
// polls shorter than the request timeout. It returns *operationError if LXD reports a failure,
// *outcomeUnknown if LXD forgot the operation (look at the object), and ctx's
// error if ctx ended first (the operation goes on). All other errors are
// transient.
func (d *Driver) wait(c *client, op api.Operation) (api.Operation, error) {
	d.log.Debug("Waiting for LXD operation", "operation", op.ID, "description", op.Description)
	poll := max(int((d.opts.RequestTimeout / 2).Seconds()), 1)
	path := "/1.0/operations/" + url.PathEscape(op.ID) + "/wait?timeout="
	deadline := time.Now().Add(d.opts.OperationTimeout)
	if ended, ok := d.results.await(c.ctx, op.ID); ok {
		return outcome(ended)
	}
	for time.Now().Before(deadline) {
		var now api.Operation
		if _, err := c.get(fmt.Sprint(path, poll), &now); err != nil {
			if fault.Is(err, fault.NotFound) {
				return op, &outcomeUnknown{op.ID}
			}
			return op, err
		}
		if now.StatusCode.IsFinal() {
			return outcome(now)
		}
	}
	return op, fault.New(fault.Transient, "LXD operation %s is not done after %s", op.ID, d.opts.OperationTimeout)
}

// outcome turns the failure of an ended operation into *operationError.
func outcome(op api.Operation) (api.Operation, error) {
	if op.StatusCode == api.Success {
		return op, nil
	}
	code, _ := op.Metadata["return"].(float64)
	return op, &operationError{message: clean(op.Err, maxMessage), code: int(code)}
}

// awaitOperations waits for the operations that run on an instance, including
// those of other clients. It reports whether there were any.
func (d *Driver) awaitOperations(c *client, name string) (bool, error) {
	ops, err := operations(c)
	if err != nil {
		return false, err
	}
	found := false
	for _, op := range ops {
		if !concerns(op, name) {
			continue
		}
		found = true
		_, err := d.wait(c, op)
		if ctxErr := c.ctx.Err(); ctxErr != nil {
			return true, ctxErr
		}
		if err != nil {
			d.log.Debug("An operation on the instance failed", "instance", name, "error", err)
		}
	}
	return found, nil
}

// operations lists the tasks that LXD is running.
func operations(c *client) ([]api.Operation, error) {
	return running(c, "", func(op api.Operation) bool { return op.Class == api.OperationClassTask })
}

// attended are the operations that last as long as a user is connected.
var attended = []string{"Executing command", "Showing console"}

// atWork lists the operations that LXD is running in any of the projects,
// including migrations.
func atWork(c *client, projects []string) (all []api.Operation, err error) {
	for _, project := range projects {
		ops, err := running(c, "&project="+url.QueryEscape(project), func(op api.Operation) bool {
			return op.Class == api.OperationClassTask || op.Class == api.OperationClassWebsocket && !slices.Contains(attended, op.Description)
		})
		if err != nil {
			return nil, err
		}
		all = append(all, ops...)
	}
	return all, nil
}

// running lists the unfinished operations that which accepts.
func running(c *client, query string, which func(api.Operation) bool) (ops []api.Operation, err error) {
	var byStatus map[string][]api.Operation
	if _, err := c.get("/1.0/operations?recursion=1"+query, &byStatus); err != nil {
		return nil, err
	}
	for _, some := range byStatus {
		for _, op := range some {
			if !op.StatusCode.IsFinal() && which(op) {
				ops = append(ops, op)
			}
		}
	}
	return ops, nil
}

func concerns(op api.Operation, name string) bool {
	for _, kind := range []string{"instances", "containers"} {
		for _, path := range op.Resources[kind] {
			if path == instancePath(name) || path == "/1.0/containers/"+url.PathEscape(name) {
				return true
			}
		}
	}
	return false
}

// maxMessage bounds, in bytes, a text from LXD or a guest in an error.
const maxMessage = 2048

// clean makes text from LXD or a guest safe for a log or a terminal.
func clean(text string, limit int) string { return oneline.Clean(text, limit) }
