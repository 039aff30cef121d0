package chat

import (
	"runtime"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// What is charged for a body is what it takes when it is decoded, within a
// half, however it is made. // P40
func TestCraftedBodiesTakeWhatIsCharged(t *testing.T) {
	wrap := func(messages string) string { return `{"model":"m","messages":[` + messages + `]}` }
	repeat := func(one string, n int) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	for name, body := range map[string]string{
		"one long text":           wrap(`{"role":"user","content":"` + strings.Repeat("x", 8<<20) + `"}`),
		"many short messages":     wrap(repeat(`{"role":"user","content":""}`, 40_000)),
		"many parts":              wrap(`{"role":"user","content":[` + repeat(`{"type":"text","text":""}`, 40_000) + `]}`),
		"many empty objects":      wrap(`{"role":"user","content":[` + repeat(`{}`, 1_000_000) + `]}`),
		"many calls":              wrap(`{"role":"assistant","content":null,"tool_calls":[` + repeat(`{"id":"","type":"function","function":{"name":"","arguments":""}}`, 18_000) + `]}`),
		"many tools":              `{"model":"m","messages":[],"tools":[` + repeat(`{"type":"function","function":{"name":"f"}}`, 30_000) + `]}`,
		"many parameters":         `{"model":"m","messages":[],` + repeat(`"a":1`, 90_000) + `}`,
		"one parameter, brackets": `{"model":"m","messages":[],"a":[` + repeat(`[]`, 1_000_000) + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			raw := []byte(body)
			before := live()
			account := memlimit.New(memlimit.Options{Run: 1 << 40, Process: 1 << 40}).Open("o")
			members, err := surface.Scan(account, raw)
			if err != nil {
				t.Fatal(err)
			}
			if err := surface.ChargeDecoded(account, members); err != nil {
				t.Fatal(err)
			}
			charged := account.Used()
			req, _, _ := decodeText(t, body)
			took := live() - before - int64(len(body)) // decodeText has a copy of its own
			runtime.KeepAlive(req)
			runtime.KeepAlive(members)
			if took > charged+charged/2+1<<20 {
				t.Errorf("%d KiB of body take %d KiB, and %d KiB are charged", len(body)>>10, took>>10, charged>>10)
			}
		})
	}
}

func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // no machine has that much
}
