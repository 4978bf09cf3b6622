package lxc

import (
	"os"
	"testing"
	"time"
)

const trie = `Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     |-- 10.0.3.7
        /32 host LOCAL
     |-- 10.0.3.255
        /32 link BROADCAST
     |-- 127.0.0.1
        /32 host LOCAL
`

const inet6 = "fe80000000000000021600fffe3e0001 02 40 20 80     eth0\n" +
	"20010db8000000000000000000000007 02 40 00 80     eth0\n" +
	"00000000000000000000000000000001 01 80 10 80       lo\n"

func TestAddresses(t *testing.T) {
	four, six := fourIn(trie), sixIn(inet6)
	if len(four) != 1 || four[0].String() != "10.0.3.7" || len(six) != 1 || six[0].String() != "2001:db8::7" {
		t.Errorf("%v, %v", four, six)
	}
}

func FuzzAddresses(f *testing.F) {
	f.Add(trie, inet6)
	f.Fuzz(func(_ *testing.T, trie, six string) { _, _ = fourIn(trie), sixIn(six) })
}

func TestAge(t *testing.T) {
	d := New(Options{})
	if age := d.age(os.Getpid()); age <= 0 || age > 10*time.Minute {
		t.Errorf("this process has run for %s", age)
	}
	if age := d.age(1 << 29); age != 0 {
		t.Errorf("a missing process has run for %s", age)
	}
}

// A size is read as the kernel does.
func TestBytesOf(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "512M": 512 << 20, "2g": 2 << 30, "": -1, "x": -1, "-1": -1, "M": -1, "9999999999T": -1} {
		if got := bytesOf(text); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
}
