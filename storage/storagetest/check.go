package storagetest

import (
	"errors"
	"os"
	"testing"

	"hostler/internal/fault"
	"hostler/storage"
)

type failer interface {
	Helper()
	Fatal(args ...any)
}

func noError(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// value returns the value of the single result, which must not be an error.
func value[T any](t *testing.T, results []storage.Result[T]) T {
	t.Helper()
	if len(results) != 1 {
		t.Fatalf("%d results", len(results))
	}
	noError(t, results[0].Err)
	return results[0].Value
}

func wantKind(t *testing.T, err error, kind fault.Kind) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Errorf("want an error of kind %s, got %v (kind %q)", kind, err, fault.KindOf(err))
	}
}

// wantBusy returns the holders of a BusyError.
func wantBusy(t *testing.T, err error) []storage.Holder {
	t.Helper()
	var busy *storage.BusyError
	if !errors.As(err, &busy) || !fault.Is(err, fault.Transient) {
		t.Errorf("want a busy error, got %v", err)
		return nil
	}
	return busy.Holders
}

func write(t *testing.T, path string, offset int64, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	noError(t, err)
	_, err = f.WriteAt([]byte(text), offset)
	noError(t, errors.Join(err, f.Sync(), f.Close()))
}

func read(t *testing.T, path string, offset int64, n int) string {
	t.Helper()
	f, err := os.Open(path)
	noError(t, err)
	defer f.Close()
	b := make([]byte, n)
	_, err = f.ReadAt(b, offset)
	noError(t, err)
	return string(b)
}
