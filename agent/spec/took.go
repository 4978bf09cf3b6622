package spec

import "math"

// Took holds the duration of each step of a machine's last creation and start, in
// seconds. A step that is not done yet, or that an instance needs no more, has 0.
type Took struct {
	// Image is the fetch or the build of the image, including the wait for another
	// machine that fetches it. Turn is the wait for the operations of other machines.
	Image float64 `json:"image"`
	Turn  float64 `json:"turn"`
	// Create is the creation of the instance, Start the hypervisor's start.
	Create float64 `json:"create"`
	Start  float64 `json:"start"`
	// Boot is the time from the start until the guest is ready. CloudInit is its
	// part that the guest's cloud-init reports.
	Boot      float64 `json:"boot"`
	CloudInit float64 `json:"cloud-init"`
}

// Total is the duration of all steps, in seconds.
func (t Took) Total() float64 {
	return math.Round((t.Image+t.Turn+t.Create+t.Start+t.Boot)*1000) / 1000
}
