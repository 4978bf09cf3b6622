package kvm

import (
	"testing"

	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
)

// read reads a domain without a stamp as a listing does.
func read(t *testing.T, text string) containerbroker.Instance {
	t.Helper()
	var def definition
	if err := def.domain.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	def.domain.Devices = &libvirtxml.DomainDeviceList{}
	i, err := New(Options{}).instanceOf(t.Context(), nil, def, "web", containerbroker.StatusRunning)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// A guest may have memory that is not whole MiB, as libvirt permits. It is
// declared with the rounded size, and that declaration changes nothing (I15).
func TestPartialMiBOfMemoryIsRounded(t *testing.T) {
	for text, want := range map[string]int64{
		"<memory unit='KB'>1000000</memory>":                                                   954 << 20,
		"<memory unit='KiB'>1048576</memory><currentMemory unit='KiB'>1048575</currentMemory>": 1 << 30,
		"<memory unit='GiB'>2</memory><currentMemory>1000000</currentMemory>":                  977 << 20,
		"<memory unit='KiB'>1048576</memory>":                                                  1 << 30,
		"<memory unit='bytes'>9223372036854775807</memory>":                                    0,
	} {
		i := read(t, "<domain type='kvm'><name>web</name><vcpu>1</vcpu>"+text+"</domain>")
		if i.Memory != want {
			t.Errorf("%s: %d MiB", text, i.Memory>>20)
		}
		m := machine()
		m.CPUs, m.Memory, m.KeepGuest = i.CPUs, i.Memory, true
		for _, c := range New(Options{}).Diff(m, i) {
			if c.Field == containerbroker.FieldMemory && want > 0 {
				t.Errorf("%s: declared as it is, its memory differs: %+v", text, c)
			}
		}
	}
}
