package anthropic

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

const (
	pngHead = "\x89PNG\r\n\x1a\n0000"
	pdfHead = "%PDF-1.7\n"
)

func in64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// asked returns a request whose second message has the parts.
func asked(parts ...item.Part) *model.Request {
	return &model.Request{Model: "claude-sonnet-5", MaxTokens: 7, Dialect: model.DialectChat, Items: []item.Item{
		item.NewText(item.System, "s"), {Kind: item.Message, Role: item.User, Parts: parts},
	}}
}

// What the dialect cannot take is refused with its place, or named. // P22
func TestPartsOfAUsersMessage(t *testing.T) {
	for _, tt := range []struct {
		name    string
		part    item.Part
		want    string   // the block
		refused string   // the message of the error
		dropped []string // beside it
	}{
		{"a PNG", item.Part{Kind: item.Image, URL: "data:image/png;base64,AA=="}, `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}`, "", nil},
		{"a JPEG by its short name, with a level of detail", item.Part{Kind: item.Image, URL: "data:image/jpg;base64,AA==", Detail: "low"}, `{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"AA=="}}`, "", []string{"messages[].content[].image_url.detail"}},
		{"an image without a type", item.Part{Kind: item.Image, Data: in64(pngHead)}, `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + in64(pngHead) + `"}}`, "", nil},
		{"a TIFF", item.Part{Kind: item.Image, URL: "data:image/tiff;base64,AA=="}, "", `messages[1].content[0].image_url: this provider takes PNG, JPEG, GIF and WebP images, and this is "image/tiff"`, nil},
		{"a data URL without base64", item.Part{Kind: item.Image, URL: "data:image/png,%89"}, "", "messages[1].content[0].image_url: a data URL must be in base64", nil},
		{"an image from the web", item.Part{Kind: item.Image, URL: "https://x/i.png", Detail: "auto"}, `{"type":"image","source":{"type":"url","url":"https://x/i.png"}}`, "", nil},
		{"an image elsewhere", item.Part{Kind: item.Image, URL: "ftp://x/i.png"}, "", "messages[1].content[0].image_url: its URL must begin with https://, http:// or data:", nil},
		{"a PDF", item.Part{Kind: item.File, Data: "data:application/pdf;base64," + in64(pdfHead), Name: "a.pdf"}, `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"` + in64(pdfHead) + `"},"title":"a.pdf"}`, "", nil},
		{"a PDF without a type", item.Part{Kind: item.File, Data: in64(pdfHead), Name: "a.pdf"}, `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"` + in64(pdfHead) + `"},"title":"a.pdf"}`, "", nil},
		{"an uploaded file", item.Part{Kind: item.File, FileID: "file_1"}, `{"type":"document","source":{"type":"file","file_id":"file_1"}}`, "", nil},
		{"a text", item.Part{Kind: item.File, Data: "data:text/csv;charset=utf-8;base64," + in64("a;b"), Name: "a.csv"}, `{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a;b"},"title":"a.csv"}`, "", nil},
		{"an image as a file", item.Part{Kind: item.File, Data: "data:image/gif;base64,AA==", Name: "a.gif"}, `{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"AA=="}}`, "", nil},
		{"a spreadsheet", item.Part{Kind: item.File, Data: "data:application/vnd.ms-excel;base64,AA=="}, "", `messages[1].content[0].file: this provider takes PDF files and texts, and this is "application/vnd.ms-excel"`, nil},
		{"speech", item.Part{Kind: item.Audio, Data: "AAAA", MIMEType: "audio/wav"}, `{"type":"text","text":"[audio; type: audio/wav; 3 bytes, not shown]"}`, "", []string{"messages[].content[].input_audio"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := asked(tt.part)
			for i := range req.Items {
				req.Items[i].Native = item.Native{Dialect: model.DialectChat, JSON: json.RawMessage(`{}`)}
			}
			p := New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{})
			body, err := p.encode(req)
			var e *model.Error
			switch {
			case tt.refused != "":
				if place, _, _ := strings.Cut(tt.refused, ": "); !errors.As(err, &e) || e.Message != tt.refused || e.Param != place || e.Class != model.Target || e.Status != 0 {
					t.Errorf("%#v", err)
				}
			case err != nil:
				t.Error(err)
			case !strings.Contains(string(body), `"messages":[{"role":"user","content":[`+tt.want+`]}]`):
				t.Errorf("%s", body)
			}
			if diff := cmp.Diff(tt.dropped, p.Dropped(req)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A result of a tool is not the client's fault: a text says what it was.
func TestPartsOfAResult(t *testing.T) {
	req := asked(item.Part{Kind: item.Text, Text: "hi"})
	call := item.NewCall("c", "f", "{}")
	call.Turn = 1
	req.Items = append(req.Items, call, item.Item{Kind: item.ToolResult, CallID: "c", Parts: []item.Part{
		{Kind: item.Image, Data: in64(pngHead), MIMEType: "image/png"}, {Kind: item.Image, Data: "AA==", MIMEType: "image/tiff"}, {Kind: item.Image, URL: "http://10.0.0.1/i.png"},
		{Kind: item.Resource, URL: "file:///a.txt", Text: "inside"}, {Kind: item.Resource, URL: "https://x/a"}, {Kind: item.Audio, Data: "AAAA", MIMEType: "audio/wav"},
	}})
	p := New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{Fetch: func(context.Context, string, tool.Memory) ([]byte, error) {
		t.Error("the URL of a tool is fetched")
		return nil, nil
	}})
	with, _, err := p.o.Fetch.Into(t.Context(), req, wire.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	body, err := p.encode(with)
	const want = `"content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgowMDAw"}},{"type":"text","text":"[image; type: image/tiff; 1 bytes, not shown]"},{"type":"text","text":"[image http://10.0.0.1/i.png]"},{"type":"document","source":{"type":"text","media_type":"text/plain","data":"inside"},"title":"file:///a.txt"},{"type":"text","text":"[resource https://x/a]"},{"type":"text","text":"[audio; type: audio/wav; 3 bytes, not shown]"}]`
	if err != nil || !strings.Contains(string(body), want) {
		t.Errorf("%v %s", err, body)
	}
	if dropped := p.Dropped(req); dropped != nil {
		t.Errorf("%q", dropped)
	}
}

// blocked is the refusal of the outbound policy.
type blocked struct{}

func (blocked) Error() string                     { return "ssrf_blocked:private:10.0.0.1" }
func (blocked) Blocked() (reason, address string) { return "private", "10.0.0.1" }

func TestURLsThatTheProviderDoesNotFetch(t *testing.T) {
	var sent []byte
	calls := 0
	fetch := func(_ context.Context, url string, memory tool.Memory) ([]byte, error) {
		calls++
		switch {
		case strings.HasSuffix(url, "/blocked"):
			return nil, fmt.Errorf("GET: %w", blocked{})
		case strings.HasSuffix(url, "/gone"):
			return nil, errors.New("its server answered 404")
		case strings.HasSuffix(url, "/page"):
			return []byte("<html>"), nil
		}
		data := []byte(pngHead)
		return data, memory.Acquire(cap(data))
	}
	p := New(providertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		sent, _ = io.ReadAll(r.Body)
		providertest.Answer(200, nil, started+block0(`{"type":"text","text":"x"}`)+stopped("end_turn"))(w, r)
	}), Options{Fetch: fetch})
	image := func(url string) item.Part { return item.Part{Kind: item.Image, URL: url} }

	t.Run("they are fetched", func(t *testing.T) {
		memory := memlimit.New(memlimit.Options{}).Open("")
		req := asked(item.Part{Kind: item.Text, Text: "?"}, image("http://x/i.png"), image("https://x/j.png"))
		req.Memory = memory.Share()
		turn, err := p.Stream(t.Context(), req, (&providertest.Heard{}).Emit)
		if err != nil || turn == nil || calls != 1 {
			t.Fatal(err, calls)
		}
		if !strings.Contains(string(sent), `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgowMDAw"}},{"type":"image","source":{"type":"url","url":"https://x/j.png"}}`) {
			t.Errorf("%s", sent)
		}
		if req.Items[1].Parts[1].URL != "http://x/i.png" {
			t.Error("the request of the caller has changed")
		}
		req.Memory.(*memlimit.Share).Close()
		if memory.Used() != 0 {
			t.Errorf("%d bytes stay charged", memory.Used())
		}
	})
	sent = nil
	for _, tt := range []struct {
		name string
		req  *model.Request
		want model.Error
	}{
		{"not there", asked(image("http://x/gone")), model.Error{Class: model.Target, Param: "messages[1].content[0].image_url", Message: "messages[1].content[0].image_url: its server answered 404"}},
		{"no image", asked(image("https://x/a"), image("http://x/page")), model.Error{Class: model.Target, Param: "messages[1].content[1].image_url", Message: `messages[1].content[1].image_url: this provider takes PNG, JPEG, GIF and WebP images, and this is "text/html"`}},
		{"too many", asked(slices.Repeat([]item.Part{image("http://x/i")}, 21)...), model.Error{Class: model.Target, Param: "messages[1].content[20].image_url", Message: "messages[1].content[20].image_url: the gateway fetches at most 20 URLs of a request"}},
		{"forbidden by the policy", asked(image("http://x/blocked")), model.Error{Class: model.Invalid, Param: "messages[1].content[0].image_url", Message: "messages[1].content[0].image_url: the outbound policy refuses the URL"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			memory := memlimit.New(memlimit.Options{}).Open("")
			tt.req.Memory = memory.Share()
			_, err := p.Stream(t.Context(), tt.req, nil)
			var e *model.Error
			if !errors.As(err, &e) || e.Class != tt.want.Class || e.Param != tt.want.Param || e.Message != tt.want.Message || sent != nil {
				t.Errorf("%#v, and %q was sent", err, sent)
			}
			var fatal tool.Blocked
			if errors.As(err, &fatal) != strings.Contains(tt.name, "policy") {
				t.Errorf("%v ends the run", err)
			}
			if memory.Used() != 0 {
				t.Errorf("%d bytes stay charged", memory.Used())
			}
		})
	}
	t.Run("too much for the run", func(t *testing.T) { // P40
		req := asked(image("http://x/i.png"))
		memory := memlimit.New(memlimit.Options{Run: 20}).Open("")
		req.Memory = memory.Share()
		var refused *memlimit.Refused
		if _, err := p.Stream(t.Context(), req, nil); !errors.As(err, &refused) || memory.Used() != 0 {
			t.Errorf("%v, %d bytes", err, memory.Used())
		}
	})
	t.Run("the caller has gone", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var e *model.Error
		if _, err := p.Stream(ctx, asked(image("http://x/gone")), nil); !errors.As(err, &e) || e.Class != model.Gone {
			t.Error(err)
		}
	})
}

func TestRequestsWithUploadedFilesSaySo(t *testing.T) {
	var got []string
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Anthropic-Beta"))
		providertest.Answer(200, nil, started+stopped("end_turn"))(w, r)
	})
	for _, part := range []item.Part{{Kind: item.File, FileID: "file_1"}, {Kind: item.Text, Text: "x"}} {
		if _, err := p.Stream(t.Context(), asked(part), nil); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"files-api-2025-04-14", ""}, got); diff != "" {
		t.Error(diff)
	}
}
