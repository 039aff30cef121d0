package webtool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

const firecrawlURL = "https://api.firecrawl.dev"

// firecrawl reads a page by Firecrawl's API. The outbound policy applies to the page, too: Firecrawl may be
// in a network of its own.
func (s *Source) firecrawl(ctx context.Context, settings org.WebScrape, u *url.URL, a scrapeArguments) (page, error) {
	key, err := s.secret(ctx, "secret:"+agent.FirecrawlKey,
		"Firecrawl API key not configured. An administrator must set it: PUT /api/settings/FIRECRAWL_API_KEY, or set web.scrape.provider to own.", agent.FirecrawlKey)
	if err != nil {
		return page{}, err
	}
	if err := s.o.Check(ctx, u.String()); err != nil {
		var fatal tool.Blocked
		if errors.As(err, &fatal) || ctx.Err() != nil {
			return page{}, failed(ctx, ctx, exchange{}, err, true)
		}
		return page{}, refuse("the name of the host could not be resolved")
	}
	body := map[string]any{"url": u.String(), "formats": []string{a.Format}, "onlyMainContent": true}
	address := strings.TrimSuffix(cmp.Or(settings.URL, firecrawlURL), "/") + "/v2/scrape"
	data, _, err := s.ask(ctx, http.MethodPost, address, body, http.Header{"Authorization": {"Bearer " + key}, "Accept": {"application/json"}})
	if err != nil {
		return page{}, toldBy(err, "Firecrawl", agent.FirecrawlKey)
	}
	return firecrawlPage(data, u, a.Format)
}

// firecrawlPage reads the answer of Firecrawl.
func firecrawlPage(data []byte, u *url.URL, format string) (page, error) {
	var answer struct {
		Success bool
		Error   string
		Data    struct {
			Markdown, HTML *string
			Links          []string
			Metadata       struct {
				Title      json.RawMessage // a text, or a list of texts
				StatusCode int
			}
		}
	}
	switch err := json.Unmarshal(data, &answer); {
	case err != nil:
		return page{}, refuse("Firecrawl answered with something that is not a page")
	case !answer.Success:
		return page{}, &refusal{text: "Firecrawl could not read the page" + after(": ", cutText(answer.Error, 300)), quotes: true}
	case answer.Data.Metadata.StatusCode >= http.StatusBadRequest:
		return page{}, refuse("the page answered with the status %d", answer.Data.Metadata.StatusCode)
	}
	p := page{url: u.String()}
	var title string
	if json.Unmarshal(answer.Data.Metadata.Title, &title) == nil {
		p.title = cutText(strings.Join(strings.Fields(title), " "), 300)
	}
	switch format {
	case "links":
		for _, address := range answer.Data.Links {
			if address = resolve(u, address); address != "" {
				p.links = append(p.links, link{URL: address})
			}
		}
	case "html":
		if answer.Data.HTML == nil {
			return page{}, refuse("Firecrawl answered without html")
		}
		return readHTML(p, cutText(*answer.Data.HTML, maxPage), u, format) // its HTML may still have hidden text
	default:
		if answer.Data.Markdown == nil {
			return page{}, refuse("Firecrawl answered without markdown")
		}
		p.text = strings.ToValidUTF8(*answer.Data.Markdown, "\ufffd")
		for _, m := range regexp.MustCompile(`!\[[^\]]*\]\(([^)\s]+)`).FindAllStringSubmatch(p.text, 100) {
			if address := resolve(u, m[1]); address != "" {
				p.images = append(p.images, address)
			}
		}
	}
	return p, nil
}
