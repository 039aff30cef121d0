package conformance

import "testing"

// testModels lists the models: the exact name of the configuration, and what the
// upstream lists and the glob matches. Each is retrieved as it is listed, and what
// is not listed raises the client's own error.
func testModels(t *testing.T, s *site) { // P12
	r := s.newRig(t, sumScript)
	want := []seenModel{{"gpt-test", 0, "up"}, {"gpt-5", 1700000001, "up"}, {"gpt-oss/20b", 1700000000, "up"}}
	for _, c := range r.clients {
		got := run(t, c, ask{BaseURL: r.gateway + "/v1", Key: readerKey, Models: true})
		wantEqual(t, "models of "+c.name(), want, got.Models)
		wantEqual(t, "models of "+c.name()+", one by one", want, got.Retrieved)
		if e := got.Error; e == nil || e.Status != 404 || e.Code != "model_not_found" {
			t.Errorf("%s: a model that is not listed raises %+v", c.name(), e)
		}
	}
}
