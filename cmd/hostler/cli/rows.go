package cli

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"hostler/agent/client"
	"hostler/internal/oneline"
)

// attachable holds the table columns of volumes, filesystems and networks. JSON
// and YAML print the agent's full objects.
type attachable struct {
	Name        string   `json:"name"`
	Provider    string   `json:"provider"`
	Bridge      string   `json:"bridge"`
	Size        int64    `json:"size"`
	Status      string   `json:"status"`
	Device      string   `json:"device"`
	Path        string   `json:"path"`
	Addresses   []string `json:"addresses"`
	Attachments []struct {
		Machine string `json:"machine"`
	} `json:"attachments"`
	Message     string     `json:"message"`
	Life        string     `json:"life"`
	Attempts    int        `json:"attempts"`
	NextRetry   *time.Time `json:"next-retry"`
	Declaration string     `json:"declaration"`
	UID         string     `json:"uid"`
}

var machineHead = []string{"NAME", "TYPE", "STATUS", "ADDRESS", "IMAGE", "AGE", "MESSAGE"}

var machineWideHead = []string{
	"NAME", "TYPE", "STATUS", "ADDRESS", "IMAGE", "AGE",
	"CPUS", "MEMORY", "DECLARATION", "ATTEMPTS", "NEXT-RETRY", "MESSAGE",
}

func machineRow(m client.Machine, now time.Time, wide bool) []string {
	address := strings.Join(m.Addresses, " ")
	if !wide && len(m.Addresses) > 1 {
		address = m.Addresses[0] + " +" + strconv.Itoa(len(m.Addresses)-1)
	}
	row := []string{m.Name, string(m.Type), string(m.Status), address, oneline.Address(m.Image), age(now, m.Created)}
	if wide {
		cpus, memory := "-", "-" // "-" means no limit or no instance yet
		if h := m.Hardware; h != nil && h.CPUs > 0 {
			cpus = strconv.Itoa(h.CPUs)
		}
		if h := m.Hardware; h != nil && h.Memory > 0 {
			memory = size(h.Memory)
		}
		row = append(row, cpus, memory, m.Declaration, strconv.Itoa(m.Attempts), until(now, m.NextRetry))
	}
	return append(row, withPercent(m.Message, m.Percent))
}

// withPercent appends an operation's percentage to text, if the percentage is
// known.
func withPercent(text string, percent *int) string {
	if percent == nil {
		return text
	}
	return strings.TrimSpace(text + " " + strconv.Itoa(*percent) + " %")
}

func machineTable(rows []client.Machine, now time.Time, wide bool) *table {
	t := &table{head: machineHead}
	if wide {
		t.head = machineWideHead
	}
	for _, m := range rows {
		t.add(machineRow(m, now, wide)...)
	}
	return t
}

// csvMachines returns a table for programs, with absolute times and whole
// lists.
func csvMachines(rows []client.Machine) *table {
	t := &table{head: []string{
		"name", "type", "life", "status", "message", "image", "instance", "addresses",
		"created", "attempts", "next-retry", "declaration", "uid",
	}}
	for _, m := range rows {
		t.add(m.Name, string(m.Type), m.Life, string(m.Status), m.Message, m.Image, m.Instance,
			strings.Join(m.Addresses, " "), stamp(m.Created), strconv.Itoa(m.Attempts), stamp(m.NextRetry), m.Declaration, m.UID)
	}
	return t
}

func stamp(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func declarationTable(rows []client.Declaration, now time.Time, wide bool) *table {
	t := &table{head: []string{"NAME", "SOURCE", "STATUS", "OBJECTS", "AGE", "CHANGED"}}
	for _, d := range rows {
		objects := count(len(d.Objects), "object")
		if wide {
			objects = strings.Join(d.Objects, " ")
		}
		status := "in force"
		if d.Problem != "" {
			status = "refused: " + d.Problem
		}
		t.add(d.Name, d.Source, status, objects, age(now, &d.Created), age(now, &d.Updated))
	}
	return t
}

func csvDeclarations(rows []client.Declaration) *table {
	t := &table{head: []string{"name", "source", "problem", "objects", "created", "updated", "generation"}}
	for _, d := range rows {
		t.add(d.Name, d.Source, d.Problem, strings.Join(d.Objects, " "), stamp(&d.Created), stamp(&d.Updated), strconv.FormatInt(d.Generation, 10))
	}
	return t
}

func imageTable(rows []client.Image, now time.Time, wide bool) *table {
	t := &table{head: []string{"REFERENCE", "DIGEST", "FORMAT", "SIZE", "WHERE", "AGE", "USED-BY"}}
	for _, i := range rows {
		digest, used := i.Digest, strings.Join(i.UsedBy, " ")
		if !wide {
			digest = digest[:min(12, len(digest))]
			if len(i.UsedBy) > 3 {
				used = count(len(i.UsedBy), "machine")
			}
		}
		t.add(oneline.Address(i.Reference), digest, i.Format, size(i.Size), i.Where, age(now, &i.Created), used)
	}
	return t
}

func csvImages(rows []client.Image) *table {
	t := &table{head: []string{"reference", "digest", "format", "size", "where", "created", "used-by"}}
	for _, i := range rows {
		t.add(i.Reference, i.Digest, i.Format, strconv.FormatInt(i.Size, 10), i.Where, stamp(&i.Created), strings.Join(i.UsedBy, " "))
	}
	return t
}

func attachableTable(rows []attachable, network bool, now time.Time, wide bool) *table {
	head := []string{"NAME", "PROVIDER", "SIZE", "STATUS", "DEVICE", "PATH", "ATTACHMENTS"}
	if network {
		head = []string{"NAME", "BRIDGE", "STATUS", "ADDRESS"}
	}
	if wide {
		head = append(head, "DECLARATION", "ATTEMPTS", "NEXT-RETRY")
	}
	t := &table{head: append(head, "MESSAGE")}
	for _, r := range rows {
		has := "-" // a filesystem on a volume has no size before it is made
		if r.Size > 0 {
			has = size(r.Size)
		}
		row := []string{r.Name, r.Provider, has, r.Status, r.Device, r.Path, strconv.Itoa(len(r.Attachments))}
		if network {
			row = []string{r.Name, r.Bridge, r.Status, strings.Join(r.Addresses, " ")}
		}
		if wide {
			row = append(row, r.Declaration, strconv.Itoa(r.Attempts), until(now, r.NextRetry))
		}
		t.add(append(row, r.Message)...)
	}
	return t
}

// csvAttachables returns a table for programs, with sizes in bytes, absolute
// times and whole lists.
func csvAttachables(rows []attachable, network bool) *table {
	t := &table{}
	own := []string{"provider", "size", "status", "device", "path", "attachments"}
	if network {
		own = []string{"bridge", "addresses", "status"}
	}
	t.head = slices.Concat([]string{"name"}, own, []string{"message", "life", "attempts", "next-retry", "declaration", "uid"})
	for _, r := range rows {
		machines := make([]string, len(r.Attachments))
		for i, a := range r.Attachments {
			machines[i] = a.Machine
		}
		own := []string{r.Provider, strconv.FormatInt(r.Size, 10), r.Status, r.Device, r.Path, strings.Join(machines, " ")}
		if network {
			own = []string{r.Bridge, strings.Join(r.Addresses, " "), r.Status}
		}
		t.add(slices.Concat([]string{r.Name}, own, []string{r.Message, r.Life, strconv.Itoa(r.Attempts), stamp(r.NextRetry), r.Declaration, r.UID})...)
	}
	return t
}
