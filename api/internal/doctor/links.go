package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// linkSettings are the api's settings of unsubscribe links.
type linkSettings struct {
	publicURL string
	keys      []string // fingerprints of all keys, which open links
}

// workerLinks are a worker's settings of the unsubscribe links that it makes.
type workerLinks struct {
	PublicURL string `json:"publicUrl"` // "" = not set: emails of mailings wait for it
	Key       string `json:"key"`       // the fingerprint of the key that encrypts; "" = not set
}

// fault returns what is wrong with the links of a worker, or "".
func (l workerLinks) fault(api *linkSettings) string {
	switch {
	case l.PublicURL == "" || l.Key == "":
		return "lacks one of them and sends no mailing"
	case api == nil:
		return ""
	case trimmed(l.PublicURL) != trimmed(api.publicURL):
		return fmt.Sprintf("makes links to %s, the api has %s", l.PublicURL, api.publicURL)
	case !slices.Contains(api.keys, l.Key):
		return "makes links with a key that the api does not have"
	}
	return ""
}

// trimmed removes what a link does not depend on.
func trimmed(publicURL string) string { return strings.TrimRight(publicURL, "/") }

// unsubscribeLinks checks whether the links that workers make lead to the api, and whether it can open them. Without the api's
// settings, the workers are compared with each other.
func (x *examination) unsubscribeLinks(alive []process) {
	if !x.bulk {
		return
	}
	var found []string
	settings := map[workerLinks]bool{}
	for _, p := range alive {
		if p.Links == nil {
			continue
		}
		if fault := p.Links.fault(x.links); fault != "" {
			found = append(found, p.name+" "+fault)
			continue
		}
		settings[workerLinks{trimmed(p.Links.PublicURL), p.Links.Key}] = true
	}
	if x.links == nil && len(settings) > 1 {
		found = append(found, "the workers differ from each other (run doctor with the api's environment to see which is wrong)")
	}
	if len(found) > 0 {
		x.add("unsubscribe", Warning, "Unless an update is changing them, give api and workers the same PUBLIC_URL and UNSUBSCRIBE_KEY, and restart them: links in mail that has been sent cannot be corrected.",
			"Workers have other settings for unsubscribe links: %s.", strings.Join(found, "; "))
	}
}
