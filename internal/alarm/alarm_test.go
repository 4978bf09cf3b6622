package alarm

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAlarmGoesOffOnceAtTheLastTimeSet(t *testing.T) {
	a, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.Set(time.Hour)
	began := time.Now()
	a.Set(50 * time.Millisecond)
	<-a.C
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("it went off after %s", took)
	}
	a.Set(0)
	<-a.C
	a.Set(20 * time.Millisecond)
	a.Set(time.Hour)
	select {
	case <-a.C:
		t.Error("it went off at a time that was replaced")
	case <-time.After(60 * time.Millisecond):
	}
}
