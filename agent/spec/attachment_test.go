package spec_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"hostler/agent/spec"
)

// The states of the modelled instance.
const (
	none     = iota
	arriving // a killed agent asked for it, and it is not listed yet
	stopped
	frozen
	running
)

// access is how a volume is declared or attached to the host: not at all, or in
// one of two modes. A device in the wrong mode is detached and attached again.
type access uint8

// world is a state of a host with a volume and a machine. It is comparable.
type world struct {
	// The store: the declaration and the two halves. source is the number of the
	// offered device, 0: not offered.
	declared access
	source   uint8
	half     half
	// The host: the device with its number and mode, and the instance with the
	// number of the device in its configuration.
	device   uint8
	mode     access
	instance uint8
	has      uint8

	storage storageWorker
	machine machineWorker
	// nic: the attachment is a NIC, the device its address on a network. The
	// storage worker's part is the network worker's: it offers the address of an
	// undeclared NIC as long as the machine uses it, and the host's restart does
	// not end the offer.
	nic bool
	// events is how many events may still happen.
	events uint8
}

// half is the half of the machine's worker.
type half uint8

const (
	earlier half = iota // the record is of an earlier version
	free
	used
)

// storageWorker is a worker between two of its steps, with its last look.
type storageWorker struct {
	step     uint8
	declared access
	source   uint8
	may      bool // the machine may hold the volume
	device   uint8
	mode     access
}

// machineWorker likewise.
type machineWorker struct {
	step     uint8
	declared access
	source   uint8
	instance uint8
	takes    bool
	creates  bool
}

// rules are the rules of the protocol; the zero value breaks them all.
type rules struct {
	// again: the storage worker takes the volume away only after a look that shows
	// its withdrawal. confirm: the machine's worker reads the offer again after it
	// wrote that it takes the volume.
	again, confirm bool
}

func (w *world) status() spec.MachineStatus {
	s := spec.MachineStatus{}
	uses := &s.Uses
	if w.nic {
		uses = &s.UsesNICs
	}
	switch w.half {
	case free:
		*uses = []string{}
	case used:
		*uses = []string{w.object()}
	}
	if w.instance >= stopped {
		s.Instance = &spec.InstanceInfo{}
	}
	return s
}

func (w *world) object() string {
	if w.nic {
		return spec.NICObject("lan", "eth0")
	}
	return "volume/data"
}

var boolInt = map[bool]int{true: 1}

// phase returns the phase for an offered source and the machine's half.
func (w *world) phase(source uint8, used bool) spec.Phase {
	switch {
	case w.nic && source == 0:
		return spec.GuestAddress{Released: &time.Time{}}.Phase(used)
	case w.nic:
		return spec.GuestAddress{}.Phase(used)
	case source == 0:
		return spec.AttachmentStatus{}.Phase(used)
	}
	return spec.AttachmentStatus{Source: fmt.Sprintf("/dev/loop%d", source)}.Phase(used)
}

// storageStep makes the next step of the storage worker: it looks, writes its
// half, and acts.
func (w *world) storageStep(r rules) (wrong string) {
	s := &w.storage
	fits := s.declared != 0 && s.device != 0 && s.mode == s.declared
	switch s.step {
	case 0:
		*s = storageWorker{declared: w.declared, source: w.source, may: w.status().InUse(w.object()), device: w.device, mode: w.mode}
	case 1:
		if w.source = 0; fits || w.nic && s.may {
			w.source = s.device
		}
	case 2:
		phase := w.phase(s.source, s.may)
		takes := phase == spec.PhaseFree || !r.again && phase == spec.PhaseOffered
		switch {
		case s.device != 0 && !fits && takes:
			if w.has == s.device && (w.instance == arriving || w.instance >= frozen) {
				wrong = "the device is taken away from the instance"
			}
			w.device = 0
		case s.device == 0 && s.declared != 0 && w.device == 0:
			if w.device = 1; w.has == 1 || w.machine.source == 1 {
				w.device = 2 // the kernel gives another number, to tell the devices apart
			}
			w.mode = s.declared
		}
	}
	s.step = (s.step + 1) % 3
	return wrong
}

// machineStep makes the next step of the machine's worker: it looks, writes its
// half, reads the offer again, changes the configuration, and starts the
// instance.
func (w *world) machineStep(r rules) (wrong string) {
	m := &w.machine
	uses := func() string {
		if m.source != w.device {
			return "the instance gets a device that was taken away"
		}
		return ""
	}
	switch m.step {
	case 0:
		*m = machineWorker{declared: w.declared, source: w.source, instance: w.instance}
	case 1:
		if m.instance == arriving {
			break
		}
		list := func(is bool) []string { return []string{w.object()}[:boolInt[is]] }
		uses := spec.Uses(list(m.declared != 0), list(m.declared != 0 && m.source != 0), list(m.instance != none && w.has != 0), m.instance == stopped)
		m.takes = len(uses) > 0 && !w.status().InUse(w.object())
		w.half = free + half(len(uses))
	case 2:
		if m.takes && r.confirm && w.source != m.source {
			*m = machineWorker{}
			return ""
		}
	case 3:
		switch {
		case m.instance != w.instance, m.instance == arriving:
			*m = machineWorker{} // something else changed it
			return ""
		case m.declared == 0:
			w.has = 0
		case m.source == 0: // it waits
		case m.instance == none:
			w.instance, m.instance, m.creates, w.has, wrong = arriving, arriving, true, m.source, uses()
		case w.has != m.source:
			w.has, wrong = m.source, uses()
		}
	case 4:
		switch {
		case m.instance != w.instance:
		case w.instance == arriving && m.creates:
			w.instance = stopped
		case w.instance == stopped && (m.declared == 0 || m.source != 0):
			if w.instance = running; m.declared != 0 {
				wrong = uses()
			}
		}
	}
	m.step = (m.step + 1) % 5
	return wrong
}

// happenings are the worlds after each event that may happen now.
func (w world) happenings() (after []world) {
	add := func(change func(*world)) {
		next := w
		next.events--
		change(&next)
		after = append(after, next)
	}
	if w.instance == arriving && !w.machine.creates {
		arrived, lost := w, w // these need no event
		arrived.instance = stopped
		lost.instance, lost.has = none, 0
		after = append(after, arrived, lost)
	}
	if w.events == 0 {
		return after
	}
	for declared := range access(3) {
		if declared != w.declared && (declared < 2 || !w.nic) { // a NIC has one mode
			add(func(n *world) { n.declared = declared })
		}
	}
	add(func(n *world) { n.storage = storageWorker{} }) // killed, or its write is lost
	add(func(n *world) { n.machine = machineWorker{} })
	switch w.instance {
	case stopped:
		add(func(n *world) { n.instance, n.has = none, 0 })
	case frozen:
		add(func(n *world) { n.instance = running })
	case running:
		add(func(n *world) { n.instance = frozen })
		add(func(n *world) { n.instance = stopped })
		add(func(n *world) { n.instance, n.has = none, 0 })
	}
	add(func(n *world) { // the host restarts
		n.storage, n.machine = storageWorker{}, machineWorker{}
		n.instance = min(n.instance, stopped)
		if !n.nic {
			n.device, n.source = 0, 0 // Prepare
		}
		if n.instance == arriving {
			n.instance, n.has = none, 0
		}
	})
	if w.instance >= stopped {
		add(func(n *world) { // the store is lost; the record is restored from the stamp
			n.storage, n.machine, n.source, n.half = storageWorker{}, machineWorker{}, 0, free
			if n.has != 0 {
				n.half = used
			}
		})
	}
	return after
}

// settle lets both workers work until nothing changes, and says why the end is
// not as declared, or "".
func (w world) settle(r rules) string {
	for range 12 {
		before := w
		if w.instance == arriving && !w.machine.creates {
			w.instance = stopped
		}
		for range 3 {
			w.storageStep(r)
		}
		for range 5 {
			w.machineStep(r)
		}
		before.storage, before.machine = w.storage, w.machine
		if before == w && w.storage.step == 0 && w.machine.step == 0 {
			break
		}
		for w.storage.step != 0 {
			w.storageStep(r)
		}
		for w.machine.step != 0 {
			w.machineStep(r)
		}
	}
	waits := w.instance >= frozen && w.has != 0 && w.has == w.device && w.mode != w.declared && w.half == used
	switch {
	case w.declared == 0 && (w.device != 0 || w.source != 0 || w.has != 0 || w.half == used):
		return "it is not taken away"
	case w.declared == 0:
	case waits:
		// The mode of a device in use changes after a stop.
		w.instance = stopped
		return w.settle(r)
	case w.device == 0 || w.mode != w.declared || w.source != w.device || w.has != w.device || w.instance < frozen:
		return "it is not attached"
	}
	return ""
}

// explore visits every world that can be reached, and returns the first wrong
// step or wrong end.
func explore(r rules, starts ...world) (visited int, wrong string) {
	seen := map[world]bool{}
	var todo []world
	visit := func(w world) {
		if !seen[w] {
			seen[w] = true
			todo = append(todo, w)
		}
	}
	for _, w := range starts {
		visit(w)
	}
	for len(todo) > 0 {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if end := w.settle(r); end != "" {
			return len(seen), fmt.Sprintf("%s in the end, from %+v", end, w)
		}
		byStorage, byMachine := w, w
		for _, step := range []struct {
			next  *world
			wrong string
		}{{&byStorage, byStorage.storageStep(r)}, {&byMachine, byMachine.machineStep(r)}} {
			if step.wrong != "" {
				return len(seen), fmt.Sprintf("%s, from %+v", step.wrong, w)
			}
			visit(*step.next)
		}
		for _, next := range w.happenings() {
			visit(next)
		}
	}
	return len(seen), ""
}

// S23, P19, A6: in every interleaving of both workers' steps with crashes, lost
// writes, changes of the declaration and of the instance, restarts of the host
// and losses of the store, storage and NICs are not taken away while the instance
// uses them, and in the end the attachment is as declared. Each rule is
// necessary.
func TestHandover(t *testing.T) {
	const events = 3
	starts := []world{
		{events: events, half: free},
		{events: events}, // a record of an earlier version, without and with an instance
		{events: events, declared: 1, source: 1, device: 1, mode: 1, instance: running, has: 1},
		{events: events, declared: 0, device: 1, mode: 1, instance: running, has: 1},
	}
	for _, nic := range []bool{false, true} {
		for i := range starts {
			starts[i].nic = nic
		}
		visited, wrong := explore(rules{again: true, confirm: true}, starts...)
		if wrong != "" {
			t.Errorf("NIC %v: %s", nic, wrong)
		}
		t.Logf("NIC %v: %d states", nic, visited)
		for _, r := range []rules{{again: true}, {confirm: true}} {
			if _, wrong := explore(r, starts...); wrong == "" {
				t.Errorf("NIC %v: %+v suffice", nic, r)
			}
		}
	}
}

// A record of an earlier version counts as holding everything while it has an
// instance, and a written half survives the store although it is empty.
func TestRecordsOfEarlierVersions(t *testing.T) {
	const data, nic = "volume/data", "network/lan/eth0"
	for text, want := range map[string]map[string]bool{
		`{"state":"pending"}`:                                        {data: false, nic: false},
		`{"state":"provisioning"}`:                                   {data: true, nic: true},
		`{"state":"running","let-go":3,"instance":{"name":"a"}}`:     {data: true, nic: true},
		`{"state":"running","uses":[],"instance":{"name":"a"}}`:      {data: false, nic: true},
		`{"state":"dying","uses":["volume/data"]}`:                   {data: true, nic: false},
		`{"state":"running","uses-nics":[],"instance":{"name":"a"}}`: {data: true, nic: false},
		`{"state":"dying","uses":[],"uses-nics":["` + nic + `"]}`:    {data: false, nic: true},
	} {
		var s, again spec.MachineStatus
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(spec.Encode(s), &again); err != nil {
			t.Fatal(err)
		}
		for object, want := range want {
			if s.InUse(object) != want || again.InUse(object) != want {
				t.Errorf("%s: %s %v, then %v", text, object, s.InUse(object), again.InUse(object))
			}
		}
	}
}
