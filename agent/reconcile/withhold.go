package reconcile

// Destructive is a step that Withhold may hold back.
type Destructive[S any] interface {
	*S
	// Destroys says whether the step deletes something or takes something from its
	// users.
	Destroys() bool
	// Wait holds the step back, so that it is only shown. why is the reason.
	Wait(why string)
}

// Withhold holds back the destructive steps of a plan while records may be
// missing, because a machine without a record may use what they destroy. why is
// the result of spec.Recovery.Withheld().
func Withhold[S any, P Destructive[S]](why string, steps []S) []S {
	if why == "" {
		return steps
	}
	for i := range steps {
		if s := P(&steps[i]); s.Destroys() {
			s.Wait(why)
		}
	}
	return steps
}
