package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/run"
)

// The test program acts as hostlerd: called with "alone" it scans, or behaves
// as its second argument says.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "alone" {
		os.Exit(m.Run())
	}
	switch os.Args[2] {
	case "probe":
		probeConfinement()
	case "hog":
		hog()
	case "spin":
		spin()
	case "killed", "crash":
		signal := map[string]syscall.Signal{"killed": unix.SIGKILL, "crash": unix.SIGSEGV}[os.Args[2]]
		_ = syscall.Kill(os.Getpid(), signal)
		select {}
	case "unconfined":
		// A lower limit than the confinement's cannot be raised.
		_ = unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1, Max: 1})
		if err := ScanAlone(context.Background(), os.Stdin, os.Stdout, partUnified, "amd64"); err != nil {
			os.Exit(1)
		}
	case "babble":
		fmt.Print(strings.Repeat("x", 1<<10))
	default:
		if err := ScanAlone(context.Background(), os.Stdin, os.Stdout, Part(os.Args[2]), os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// probed holds the results of a confined process's attempts, as errors or "".
type probed struct {
	UID, Groups                        int
	Read, Write, Exec, TCP, File, Self string
}

func probeConfinement() {
	secret := os.Args[3]
	if err := confine(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	groups, _ := os.Getgroups()
	p := probed{UID: os.Getuid(), Groups: len(groups)}
	_, err := os.ReadFile(secret)
	p.Read = text(err)
	p.Write = text(os.WriteFile(filepath.Join(filepath.Dir(secret), "made"), nil, 0o600))
	p.Exec = text(syscall.Exec("/bin/true", []string{"true"}, nil))
	_, err = net.Dial("tcp4", "127.0.0.1:9")
	p.TCP = text(err)
	_, err = os.Stdin.Stat()
	p.File = text(err)
	_, err = os.ReadFile("/proc/self/environ")
	p.Self = text(err)
	_ = json.NewEncoder(os.Stdout).Encode(p)
}

// hog allocates memory until the kernel refuses it.
func hog() {
	if err := confine(); err != nil {
		os.Exit(3)
	}
	var all [][]byte
	for range 64 {
		b := make([]byte, 64<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		all = append(all, b)
	}
	fmt.Printf(`{"done": true, "message": "%d MiB"}`, 64*len(all))
}

// spin uses up its CPU time.
func spin() {
	if err := errors.Join(confine(), unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: 1, Max: 20})); err != nil {
		os.Exit(3)
	}
	for i := 0; ; i++ {
	}
}

func alone(args ...string) Scanner {
	return Isolated(run.Host{}, "/proc/self/exe", append([]string{"alone"}, args...)...)
}

// The scanner has no user, no files, no programs and no network, even though
// all users may read and write the file that it tries.
// Attack: images
func TestScannerIsConfined(t *testing.T) {
	if !Confines() {
		t.Fatal("this kernel has no Landlock")
	}
	// Go's directory for the test is closed to other users.
	dir := t.TempDir()
	secret := filepath.Join(dir, "file")
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.WriteFile(secret, []byte("secret"), 0o666), os.Chmod(dir, 0o777), os.Chmod(secret, 0o666)); err != nil {
		t.Fatal(err)
	}
	result, err := run.Host{}.Run(t.Context(), run.Command{Path: "/proc/self/exe", Args: []string{"alone", "probe", secret}, Unprivileged: true})
	if err != nil {
		t.Fatal(err)
	}
	var p probed
	if err := json.Unmarshal(result.Stdout, &p); err != nil {
		t.Fatalf("%v: %s", err, result.Stdout)
	}
	if p.UID != 65533 || p.Groups != 0 || p.File != "" {
		t.Errorf("%+v", p)
	}
	for what, got := range map[string]string{"read": p.Read, "write": p.Write, "exec": p.Exec, "look at itself": p.Self} {
		if !strings.Contains(got, unix.EACCES.Error()) {
			t.Errorf("it could %s: %q", what, got)
		}
	}
	if !strings.Contains(p.TCP, unix.EACCES.Error()) {
		t.Errorf("it could connect: %q", p.TCP)
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it made a file: %v", err)
	}
}

// A process that takes too much memory, dies, or writes another answer refuses
// the image and does no other harm.
// Attack: images
func TestScannerThatFailsRefusesTheImage(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, []byte("no image at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, c := range map[string]struct {
		scan Scanner
		why  string
	}{
		"no image":        {alone(), "the image is refused: "},
		"too much memory": {alone("hog"), "ended without an answer (exit status "},
		"too much time":   {alone("spin"), "ended without an answer (exit status 2)"},
		"a crash":         {alone("crash"), "ended without an answer ("},
		"something else":  {alone("babble"), "ended without an answer (it wrote another answer)"},
	} {
		err := c.scan(t.Context(), f, 15, Expect{Part: partUnified, Arch: "amd64"})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v (%s)", name, err, fault.KindOf(err))
		}
	}
	if err := alone()(t.Context(), f, 15, Expect{Part: "x"}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "is unknown") {
		t.Errorf("a wrong part: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := alone()(ctx, f, 15, Expect{Part: partUnified}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone: %v", err)
	}
	err = Isolated(run.Host{}, "/absent")(t.Context(), f, 15, Expect{Part: partUnified})
	if err == nil || fault.KindOf(err) != fault.Transient {
		t.Errorf("without a program: %v", err)
	}
}

// The death of the scanner says nothing about the image if the kernel killed it,
// e.g. because the host lacks memory, or if it could not be confined. The image
// is read again later.
func TestScannerThatCannotWorkIsTriedAgain(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, []byte("no image at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for what, why := range map[string]string{"killed": "was killed", "unconfined": "cannot confine this process"} {
		err := alone(what)(t.Context(), f, 15, Expect{Part: partUnified, Arch: "amd64"})
		if err == nil || fault.KindOf(err) != fault.Transient || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v (%s)", what, err, fault.KindOf(err))
		}
	}
}
