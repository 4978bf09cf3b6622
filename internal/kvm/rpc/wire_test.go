package rpc

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

// pipe gives a wire the data that a libvirt would send, and then the end.
func pipe(t testing.TB, data []byte, onEvent func(Event)) *wire {
	t.Helper()
	near, far := net.Pipe()
	go func() {
		_, _ = far.Write(data)
		_ = far.Close()
	}()
	t.Cleanup(func() { _ = near.Close() })
	return &wire{Conn: near, onEvent: onEvent}
}

func frame(length, program, procedure, kind uint32, body []byte) []byte {
	var b []byte
	for _, word := range []uint32{length, program, 1, procedure, kind, 7, 0} {
		b = binary.BigEndian.AppendUint32(b, word)
	}
	return append(b, body...)
}

func whole(program, procedure, kind uint32, body []byte) []byte {
	return frame(uint32(frameHeader+len(body)), program, procedure, kind, body)
}

func lifecycle(name string) []byte {
	body := binary.BigEndian.AppendUint32(nil, 1)
	body = binary.BigEndian.AppendUint32(body, uint32(len(name)))
	body = append(body, name...)
	body = append(body, make([]byte, (4-len(name)%4)%4+16+4)...)
	body = binary.BigEndian.AppendUint32(body, 2)
	return binary.BigEndian.AppendUint32(body, 0)
}

func TestFramesPassAndEventsAreTakenOut(t *testing.T) {
	answer := whole(programRemote, 1, 1, []byte("four"))
	var heard []Event
	w := pipe(t, bytes.Join([][]byte{whole(programRemote, ProcLifecycle, typeMessage, lifecycle("web")), answer, answer}, nil), func(e Event) { heard = append(heard, e) })
	got, err := io.ReadAll(w)
	if err != nil || !bytes.Equal(got, append(bytes.Clone(answer), answer...)) {
		t.Errorf("%q, %v", got, err)
	}
	if len(heard) != 1 || heard[0].Name != "web" || heard[0].Code != 2 {
		t.Errorf("events %+v", heard)
	}
}

// An impossible length ends the connection and costs neither memory nor a
// panic; so does a truncated answer.
func TestImpossibleFramesEndTheConnection(t *testing.T) {
	good := whole(programRemote, 1, 1, []byte("four"))
	for name, data := range map[string][]byte{
		"shorter than its header": frame(5, programRemote, 1, 1, nil),
		"4 GiB":                   frame(0xffffffff, programRemote, 1, 1, nil),
		"over the cap":            frame(maxFrame+1, programRemote, 1, 1, nil),
		"cut short":               frame(100, programRemote, 1, 1, []byte("four")),
		"half a header":           good[:10],
	} {
		w := pipe(t, append(bytes.Clone(good), data...), nil)
		got, err := io.ReadAll(w)
		if err != nil || !bytes.Equal(got, good) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if _, err := w.Conn.Write([]byte("x")); err == nil {
			t.Errorf("%s: the connection is still open", name)
		}
	}
}

func FuzzWire(f *testing.F) {
	f.Add(whole(programRemote, ProcLifecycle, typeMessage, lifecycle("web")))
	f.Add(whole(programRemote, 1, 1, []byte("four")))
	f.Add(frame(0xffffffff, programRemote, ProcLifecycle, typeMessage, []byte("four")))
	f.Fuzz(func(t *testing.T, data []byte) {
		w := pipe(t, data, func(e Event) {
			if len(e.Name) > maxName {
				t.Errorf("a name of %d bytes", len(e.Name))
			}
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, _ := io.ReadAll(w)
			for len(got) > 0 {
				if len(got) < frameHeader {
					t.Errorf("half a frame was let through: %q", got)
					return
				}
				n := binary.BigEndian.Uint32(got)
				if n < frameHeader || int(n) > len(got) {
					t.Errorf("a frame of %d bytes was let through", n)
					return
				}
				got = got[n:]
			}
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("it hangs")
		}
	})
}
