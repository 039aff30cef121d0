package tool_test

import (
	"encoding/json"
	"testing"

	"github.com/turnpike-gateway/turnpike/tool"
)

func TestMoneyInJSON(t *testing.T) {
	type bill struct {
		Cost tool.Money
		Rest tool.Money `json:",omitzero"`
	}
	for want, b := range map[string]bill{
		`{"Cost":""}`:                        {},
		`{"Cost":"0"}`:                       {Cost: tool.USD("0")},
		`{"Cost":"0.00016","Rest":"12.5"}`:   {tool.USD("0.000160"), tool.USD("12.50")},
		`{"Cost":"9223372036.854775807"}`:    {Cost: tool.NanoUSD(1<<63 - 1)},
		`{"Cost":"0.000000001","Rest":"10"}`: {tool.NanoUSD(1), tool.NanoUSD(10_000_000_000)},
	} {
		out, err := json.Marshal(b)
		if err != nil || string(out) != want {
			t.Errorf("%s, %v; want %s", out, err, want)
		}
		again := bill{Cost: tool.USD("7")}
		if err := json.Unmarshal(out, &again); err != nil || again != b {
			t.Errorf("%s is read as %+v, %v", out, again, err)
		}
	}
	for _, bad := range []string{`"-1"`, `"1e3"`, `"0.0000000001"`, `"x"`, `1`} {
		var m tool.Money
		if err := json.Unmarshal([]byte(bad), &m); err == nil {
			t.Errorf("%s is read as %v", bad, m)
		}
	}
}
