package conformance

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// unicodeText has characters of one to four bytes, joined emoji, a combining
// accent, right-to-left letters, the line separator and a byte order mark.
const unicodeText = "naïve – 東京は今日も晴れ 한국어 🧑‍🚀👩‍👩‍👧‍👦 e\u0301 שלום \u2028 \ufeff 𝄞 \"quoted\" \\ back\tslash\r\nend 🏁"

// unicodeScript writes its stream in pieces of as many bytes as the model's name
// says.
func unicodeScript(ask chatRequest) turn {
	size, err := strconv.Atoi(strings.TrimPrefix(ask.Model, "gpt-cut-"))
	if err != nil {
		return unexpected("the size of a piece in the model's name", ask.Model)
	}
	return turn{Text: unicodeText, Piece: size, Usage: tokens(2, 40)}
}

// testUnicode cuts the upstream's stream in the midst of characters, escapes and
// lines.
func testUnicode(t *testing.T, s *site) {
	r := s.newRig(t, unicodeScript)
	for _, key := range []string{devKey, plainKey} {
		mode := map[string]string{devKey: "in the loop", plainKey: "relayed"}[key]
		for _, size := range []int{1, 2, 3, 7, 64, 1000} {
			for _, c := range r.clients {
				t.Run(fmt.Sprintf("pieces of %d bytes %s in %s", size, mode, c.name()), func(t *testing.T) {
					question := r.ask(fmt.Sprintf("gpt-cut-%d", size), unicodeText, true)
					question.Key = key
					got := answer(t, c, question)
					wantEqual(t, "text", unicodeText, got.Text)
					for _, seen := range r.upstream.take() {
						wantEqual(t, "question at the upstream", content(unicodeText), seen.Chat.Messages[0].Content)
					}
				})
			}
		}
	}
}
