package file

import "testing"

func TestTheContainerOfASession(t *testing.T) { // E13
	for session, want := range map[string]string{"run_0k3v": "cntr_0k3v", "session key trip 7": "cntr_"} {
		id := ContainerOf(session)
		run, isRun := RunOfContainer(id)
		if want == "cntr_" && (len(id) != len(want)+32 || isRun) {
			t.Errorf("%s has the container %s, of the run %q", session, id, run)
		}
		if want != "cntr_" && (id != want || run != session) {
			t.Errorf("%s has the container %s, of the run %q", session, id, run)
		}
	}
	if ContainerOf("session key trip 7") == ContainerOf("session key trip 8") {
		t.Error("two sessions have one container")
	}
	for _, id := range []string{"", "cntr_", "run_1", "resp_1"} {
		if run, ok := RunOfContainer(id); ok {
			t.Errorf("%q is the container of %q", id, run)
		}
	}
}
