package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/oneline"
	"hostler/internal/run"
)

// The bounds of a process that scans, in bytes and in seconds of a processor.
// The scan itself is bounded in what it keeps: see maxNames and the limits of
// the formats. Go returns memory before the soft limit, the kernel refuses it at
// the hard one.
const (
	scanMemorySoft = 384 << 20
	scanMemoryHard = 1 << 30
	scanSeconds    = 30 * 60
)

// Scanner is Scan or what does the same elsewhere.
type Scanner func(ctx context.Context, f *os.File, size int64, expect Expect) error

// Isolated returns a Scanner that runs `PROGRAM ARGS... PART ARCH` for each
// file, which is to call ScanAlone: whoever finds a hole in a decoder by an
// image has a process of a user that owns nothing and can open no file.
func Isolated(runner run.Runner, program string, args ...string) Scanner {
	return func(ctx context.Context, f *os.File, _ int64, expect Expect) error {
		result, err := runner.Run(ctx, run.Command{
			Path: program, Args: append(args, string(expect.Part), expect.Arch), Dir: "/",
			Stdin: f, Unprivileged: true, Limit: 64 << 10,
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var said answer
		if jsonErr := json.Unmarshal(result.Stdout, &said); err == nil && jsonErr == nil && said.Done {
			if said.Message == "" {
				return nil
			}
			return fault.New(fault.Invalid, "%s", oneline.Clean(said.Message, maxAnswer))
		}
		var exit *run.ExitError
		if err != nil && !errors.As(err, &exit) {
			return fmt.Errorf("cannot start what reads images: %w", err)
		}
		// Damaged input must not end what reads it: it is no image to use.
		return refuse("what reads it ended without an answer (%s)", ending(exit))
	}
}

// maxAnswer bounds, in bytes, the sentence that a process answers.
const maxAnswer = 2048

// ending says how a process ended.
func ending(exit *run.ExitError) string {
	switch {
	case exit == nil:
		return "it wrote something else"
	case exit.Signal != "":
		return exit.Signal
	}
	return fmt.Sprintf("exit status %d", exit.Code)
}

// answer is what a process that scans writes to its output.
type answer struct {
	Done    bool   `json:"done"`
	Message string `json:"message,omitempty"` // why the image is refused
}

// ScanAlone scans the file in stdin as a process of its own and writes the
// answer to out. First it gives up all that it may: opening files, TCP, new
// privileges, being traced, and memory beyond a bound.
func ScanAlone(ctx context.Context, stdin *os.File, out io.Writer, part Part, arch string) error {
	if err := confine(); err != nil {
		return fmt.Errorf("cannot confine this process: %w", err)
	}
	info, err := stdin.Stat()
	if err != nil {
		return err
	}
	said := answer{Done: true}
	if err := Scan(ctx, stdin, info.Size(), Expect{Part: part, Arch: arch}); err != nil {
		said.Message = err.Error()
	}
	return json.NewEncoder(out).Encode(said)
}

func confine() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	for resource, most := range map[int]uint64{
		unix.RLIMIT_DATA: scanMemoryHard, unix.RLIMIT_CPU: scanSeconds, unix.RLIMIT_FSIZE: maxAnswer * 8, unix.RLIMIT_CORE: 0,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return err
		}
	}
	debug.SetMemoryLimit(scanMemorySoft)
	// Sets no_new_privs too. An older kernel does as much of it as it can.
	return landlock.V8.BestEffort().Restrict()
}

// Confines says whether this host's kernel has Landlock, which keeps the
// process that scans from opening files.
func Confines() bool {
	version, err := landlocksys.LandlockGetABIVersion()
	return err == nil && version > 0
}
