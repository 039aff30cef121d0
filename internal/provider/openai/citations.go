package openai

import (
	"encoding/json"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
)

// maxCitations is how many citations one turn may have.
const maxCitations = 4096

// annotation is an element of the member annotations. The dialect has only those of URLs.
type annotation struct {
	Type string `json:"type"`
	URL  struct {
		Start int64  `json:"start_index"`
		End   int64  `json:"end_index"`
		URL   string `json:"url"`
		Title string `json:"title"`
	} `json:"url_citation"`
}

// annotate takes the annotations of a delta. Some providers repeat them.
func (a *assembly) annotate(list []byte) error {
	for _, v := range jsonscan.Elements(list) {
		var w annotation
		if json.Unmarshal(v, &w) != nil || w.Type != "url_citation" || w.URL.URL == "" {
			continue // the provider gets it back as it is
		}
		c := item.Citation{Kind: item.CitesURL, URL: w.URL.URL, Title: w.URL.Title, Start: w.URL.Start, End: w.URL.End}
		if a.citing[c] {
			continue
		}
		if len(a.citations) == maxCitations {
			return wire.Broken(fmt.Sprintf("sent a turn with more than %d annotations", maxCitations), nil)
		}
		if a.citing == nil {
			a.citing = map[item.Citation]bool{}
		}
		a.citing[c] = true
		a.citations = append(a.citations, c)
	}
	return a.reportCitations()
}

// reportCitations reports the citations that have not been reported, as soon as there is a text.
func (a *assembly) reportCitations() error {
	if a.textPart == 0 {
		return nil
	}
	for ; a.cited < len(a.citations); a.cited++ {
		c := &a.citations[a.cited]
		c.Part = a.textPart - 1
		if err := a.Cite(a.messageItem-1, *c); err != nil {
			return err
		}
	}
	return nil
}
