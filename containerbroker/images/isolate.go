package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/oneline"
	"hostler/internal/run"
)

// The bounds of a scanning process, in bytes and in seconds of CPU time. The
// scan's own data is bounded by maxNames and the limits of the formats. At the
// soft limit Go's runtime frees unused memory. At the hard limit the kernel
// refuses more memory.
const (
	scanMemorySoft = 384 << 20
	scanMemoryHard = 1 << 30
	scanSeconds    = 30 * 60
	// After scanSeconds the process ends itself. It does so because the
	// kernel's SIGKILL, after scanSecondsLeft more, looks like a SIGKILL for
	// lack of memory.
	scanSecondsLeft = 60
)

// Scanner is a function that makes the same checks as scanFile(), e.g. in
// another process.
type Scanner func(ctx context.Context, f *os.File, size int64, expect Expect) error

// Isolated returns a Scanner that runs `PROGRAM ARGS... PART ARCH` for each
// file. The program must call ScanAlone. An image that exploits a decoder then
// controls only a process that can open no file and whose user owns nothing. If
// that process crashes, the Scanner returns fault.Invalid. If it was killed or
// could not confine itself, the Scanner returns fault.Transient.
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
			return fmt.Errorf("cannot start the process that reads images: %w", err)
		}
		if said.Failure != "" {
			return fault.New(fault.Transient, "cannot check the image: %s", oneline.Clean(said.Failure, maxAnswer))
		}
		if exit != nil && exit.Signal == unix.SIGKILL.String() {
			return fault.New(fault.Transient, "cannot check the image: the process that reads it was killed; if the host lacks memory, `journalctl -k` shows it")
		}
		// Damaged input should not crash the scanner, so refuse an image that
		// does.
		return refuse("the process that reads it ended without an answer (%s)", ending(exit))
	}
}

// maxAnswer bounds the text of the process's answer that an error includes, in
// bytes.
const maxAnswer = 2048

// ending describes how a process ended.
func ending(exit *run.ExitError) string {
	switch {
	case exit == nil:
		return "it wrote another answer"
	case exit.Signal != "":
		return exit.Signal
	}
	return fmt.Sprintf("exit status %d", exit.Code)
}

// answer is the output of a scanning process.
type answer struct {
	Done    bool   `json:"done"`
	Message string `json:"message,omitempty"` // why the image is refused
	Failure string `json:"failure,omitempty"` // why the scan could not begin
}

// ScanAlone scans the file stdin and writes the answer to out. It must run in a
// separate process, because it first gives up the process's rights to open
// files, use TCP and gain privileges, prevents tracing and limits memory.
func ScanAlone(ctx context.Context, stdin *os.File, out io.Writer, part Part, arch string) error {
	if err := confine(); err != nil {
		err = fmt.Errorf("cannot confine this process: %w", err)
		return errors.Join(err, json.NewEncoder(out).Encode(answer{Failure: err.Error()}))
	}
	info, err := stdin.Stat()
	if err != nil {
		return err
	}
	said := answer{Done: true}
	if err := scanFile(ctx, stdin, info.Size(), Expect{Part: part, Arch: arch}); err != nil {
		said.Message = err.Error()
	}
	return json.NewEncoder(out).Encode(said)
}

func confine() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	for resource, most := range map[int]uint64{unix.RLIMIT_DATA: scanMemoryHard, unix.RLIMIT_FSIZE: maxAnswer * 8, unix.RLIMIT_CORE: 0} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return err
		}
	}
	// Go's runtime ignores SIGXCPU, which the kernel sends at the soft limit.
	late := make(chan os.Signal, 1)
	signal.Notify(late, unix.SIGXCPU)
	go func() {
		<-late
		os.Exit(2)
	}()
	if err := unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: scanSeconds, Max: scanSeconds + scanSecondsLeft}); err != nil {
		return err
	}
	debug.SetMemoryLimit(scanMemorySoft)
	// Restrict also sets no_new_privs. On an older kernel it restricts as much
	// as that kernel supports.
	return landlock.V8.BestEffort().Restrict()
}

// Confines reports whether this host's kernel has Landlock, which keeps the
// scanning process from opening files.
func Confines() bool {
	version, err := landlocksys.LandlockGetABIVersion()
	return err == nil && version > 0
}
