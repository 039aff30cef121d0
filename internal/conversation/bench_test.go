package conversation_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
	"github.com/turnpike-gateway/turnpike/item"
)

// What a turn reads of the turns before it, by the kind of the history: CPU and statements.
func BenchmarkHistory(b *testing.B) {
	for _, kind := range []string{"chain", "conversation", "session"} {
		for _, turns := range []int{1, 50, 200, 700} {
			b.Run(fmt.Sprintf("%s/turns=%d", kind, turns), func(b *testing.B) { benchmarkHistory(b, kind, turns) })
		}
	}
}

func benchmarkHistory(b *testing.B, kind string, turns int) {
	store, err := database.Open(b.Context(), database.Options{
		Path: filepath.Join(b.TempDir(), "turnpike.db"), Connector: storetest.RecordStatements,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	ref := conversation.Ref{ID: "conv_1", Named: true}
	var saves errgroup.Group
	var ids []string
	for i := range turns {
		c := segment(i)
		id := conversation.SegmentID(c.RunID, "")
		switch kind {
		case "chain":
			c.Previous, ref = ref.ID, conversation.Ref{ID: id}
			if i == 0 {
				c.Previous = ""
			}
		case "session":
			c.Owner = ref.ID
			fallthrough
		default:
			c.Parts = ids[:i:i]
		}
		ids = append(ids, id)
		saves.Go(func() error { return conversation.SaveSegment(b.Context(), store, "o", id, c, time.Hour) })
	}
	if ref.Named {
		saves.Go(func() error {
			return conversation.Save(b.Context(), store, "o", ref.ID, journal.Conversation{Parts: ids}, time.Hour)
		})
	}
	if err := saves.Wait(); err != nil {
		b.Fatal(err)
	}
	var sent storetest.Statements
	ctx := sent.Mark(b.Context())
	began := cpu(b)
	for b.Loop() {
		read, err := conversation.Begin(ctx, store, store, conversation.Request{Org: "o", Continues: ref}, nil)
		if err != nil || len(read.Items) != 2*turns {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu(b)-began).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(len(sent.Take()))/float64(b.N), "statements/op")
}

// segment returns a turn of about 1,000 bytes as it is stored.
func segment(i int) journal.Conversation {
	asked := item.NewText(item.User, strings.Repeat("What is it? ", 8))
	said := item.NewText(item.Assistant, strings.Repeat("It is that. ", 8))
	said.Turn = 1
	said.Native = item.Native{Dialect: "openai-chat", Provider: "up", JSON: json.RawMessage(`{"role":"assistant","content":"` + said.Text() + `"}`)}
	input := json.RawMessage(`{"type":"message","role":"user","content":"` + asked.Text() + `"}`)
	return journal.Conversation{
		RunID: fmt.Sprintf("run_%026d", i), Part: 1, Items: item.List{asked, said}, CallIDs: map[string]string{},
		Input: []journal.Entry{{ID: fmt.Sprintf("msg_%026d", i), JSON: input}}, Target: event.Target{Provider: "up", Model: "m"},
		RequestJSON: json.RawMessage(`{"model":"m","store":true,"temperature":null,"top_p":null,"metadata":{},"tools":[]}`),
	}
}

// cpu returns the CPU time that the process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
