package mcptool

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

func TestContentBecomesParts(t *testing.T) {
	cases := []struct {
		name, raw string
		want      []item.Part
	}{
		{"text", `{"content":[{"type":"text","text":"a"},{"type":"text","text":""}]}`, []item.Part{text("a"), text("")}},
		{"one piece without its list", `{"content":{"type":"text","text":"a"}}`, []item.Part{text("a")}},
		{"an image", `{"content":[{"type":"image","data":"cG5n","mimeType":"image/png"}]}`, []item.Part{{Kind: item.Image, Data: "cG5n", MIMEType: "image/png"}}},
		{"a sound", `{"content":[{"type":"audio","data":"cG5n","mimeType":"audio/wav"}]}`, []item.Part{{Kind: item.Audio, Data: "cG5n", MIMEType: "audio/wav"}}},
		{"an image that is none", `{"content":[{"type":"image","data":"%%"}]}`, []item.Part{text("[image with unreadable data left out]")}},
		{"a link is named and not fetched", `{"content":[{"type":"resource_link","uri":"http://169.254.169.254/","name":"n","description":"d"}]}`,
			[]item.Part{text("[resource http://169.254.169.254/; name: n; description: d]")}},
		{"an embedded text", `{"content":[{"type":"resource","resource":{"uri":"file:///a","text":"body"}}]}`, []item.Part{text("[resource file:///a]\nbody")}},
		{"an embedded blob", `{"content":[{"type":"resource","resource":{"uri":"file:///a","mimeType":"image/png","blob":"cG5n"}}]}`,
			[]item.Part{text("[resource file:///a; type: image/png; 3 bytes, not shown]")}},
		{"an unknown type", `{"content":[{"type":"hologram"},7]}`, []item.Part{text(`[content of unknown type "hologram" left out]`), text("[unreadable content left out]")}},
		{"structured only", `{"structuredContent":{"n":12345678901234567890}}`, []item.Part{text(`{"n":12345678901234567890}`)}},
		{"structured beside an image", `{"content":[{"type":"image","data":"cG5n"}],"structuredContent":[1]}`, []item.Part{{Kind: item.Image, Data: "cG5n"}, text("[1]")}},
		{"structured beside text", `{"content":[{"type":"text","text":"a"}],"structuredContent":[1]}`, []item.Part{text("a")}},
		{"nothing", `{}`, []item.Part{}}, {"null", `null`, []item.Part{}}, {"null content", `{"content":null}`, []item.Part{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := decodeResult("t", "s", json.RawMessage(c.raw))
			if diff := cmp.Diff(tool.Result{Parts: c.want}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAMillionPiecesOfContentAreCut(t *testing.T) {
	raw := `{"content":[` + strings.Repeat(`{"type":"text","text":"a"},`, maxParts+41) + `{"type":"text","text":"a"}]}`
	got := decodeResult("t", "s", json.RawMessage(raw))
	if len(got.Parts) != maxParts+1 || got.Parts[maxParts].Text != "[42 more pieces of content left out]" {
		t.Error(len(got.Parts), got.Parts[len(got.Parts)-1])
	}
}

// P06
func TestAResultHasSoManyParts(t *testing.T) {
	for _, n := range []int{maxParts, maxParts + 1} {
		raw := `{"content":[` + strings.Repeat(`{"type":"text","text":"a"},`, n-1) + `{"type":"text","text":"a"}]}`
		parts := decodeResult("t", "s", []byte(raw)).Parts
		last := parts[len(parts)-1].Text
		if n == maxParts && (len(parts) != n || last != "a") || n > maxParts && (len(parts) != maxParts+1 || last != "[1 more pieces of content left out]") {
			t.Errorf("%d pieces: %d parts, the last %q", n, len(parts), last)
		}
	}
}
