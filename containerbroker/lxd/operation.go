package lxd

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/internal/fault"
	"hostler/internal/oneline"
	"hostler/internal/pause"
)

// operationError is a failure of an operation that LXD itself reported, so that
// the outcome is known. If a command could not be run, code is the exit code
// that a shell would return.
type operationError struct {
	message string
	code    int
}

func (e *operationError) Error() string { return e.message }

// outcomeUnknown means that LXD no longer knows an operation. LXD forgets a
// finished operation after five seconds, and all operations when it restarts.
type outcomeUnknown struct{ daemon, id string }

func (e *outcomeUnknown) Error() string {
	return fmt.Sprintf("%s no longer knows operation %s", e.daemon, e.id)
}

// waitAgain is the delay after Incus refused a wait for an operation that runs.
const waitAgain = 100 * time.Millisecond

// wait waits until an operation is done. It learns the end from the event
// stream, or from long polls shorter than the request timeout. It returns
// *operationError if LXD reports a failure, and *outcomeUnknown if LXD forgot
// the operation, so that the caller must look at the object. If ctx ends first,
// wait returns ctx's error and the operation goes on. Other errors are mostly
// transient.
func (d *Driver) wait(c *client, op api.Operation) (api.Operation, error) {
	d.log.Debug("Waiting for an operation", "operation", op.ID, "description", op.Description)
	poll := max(int((d.opts.RequestTimeout / 2).Seconds()), 1)
	path := "/1.0/operations/" + url.PathEscape(op.ID) + "/wait?timeout="
	deadline := time.Now().Add(d.opts.OperationTimeout)
	if ended, ok := d.results.await(c.ctx, op.ID); ok {
		return outcome(ended)
	}
	for time.Now().Before(deadline) {
		var now api.Operation
		_, err := c.get(fmt.Sprint(path, poll), &now)
		_, answered := api.StatusErrorMatch(err)
		refused := answered && d.opts.Dialect.waitFails
		if refused {
			_, err = c.get("/1.0/operations/"+url.PathEscape(op.ID), &now)
		}
		if err != nil {
			if fault.Is(err, fault.NotFound) {
				return op, &outcomeUnknown{c.dialect.Name, op.ID}
			}
			return op, err
		}
		if now.StatusCode.IsFinal() {
			return outcome(now)
		}
		if refused {
			// The wait may have failed at once.
			if err := pause.For(c.ctx, waitAgain); err != nil {
				return op, err
			}
		}
	}
	return op, fault.New(fault.Transient, "%s operation %s is not done after %s", c.dialect.Name, op.ID, d.opts.OperationTimeout)
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
// those of other clients. It reports whether there were any operations.
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

// operations lists the operations of class task that LXD is running.
func operations(c *client) ([]api.Operation, error) {
	return running(c, "", func(op api.Operation) bool { return op.Class == api.OperationClassTask })
}

// attended are the operations that last as long as a user is connected.
var attended = []string{"Executing command", "Showing console"}

// atWork lists the operations that LXD is running in any of the projects. It
// includes migrations and leaves out attended operations.
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

// running lists the unfinished operations for which which() returns true.
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

// maxMessage bounds, in bytes, the text from LXD or a guest that an error
// includes.
const maxMessage = 2048

// clean makes text from LXD or a guest safe for a log or a terminal.
func clean(text string, limit int) string { return oneline.Clean(text, limit) }
