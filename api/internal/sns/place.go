package sns

import (
	"errors"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// places are where something may be fetched from.
type places struct {
	trusted *url.URL // nil = Amazon's hosts
}

var (
	// amazonHost has no port: one in the URL makes it no match.
	amazonHost = regexp.MustCompile(`^sns\.[a-z0-9-]{3,}\.amazonaws\.com(\.cn)?$`)
	// pemFile is one segment, as in /SimpleNotificationService-0123abcd.pem.
	pemFile = regexp.MustCompile(`^/[A-Za-z0-9._-]+\.pem$`)
)

// certificate checks where a signing certificate is said to be.
func (p places) certificate(raw string) (string, error) {
	u, err := p.parse(raw)
	if err != nil {
		return "", err
	}
	switch {
	case u.RawQuery != "" || u.ForceQuery:
		return "", errors.New("has a query")
	case p.trusted == nil && !pemFile.MatchString(u.EscapedPath()), !strings.HasSuffix(u.Path, ".pem"):
		return "", errors.New("does not name a .pem file")
	}
	return u.String(), nil
}

// confirmation checks where a subscription is said to be confirmed.
func (p places) confirmation(raw string) (string, error) {
	u, err := p.parse(raw)
	if err != nil {
		return "", err
	}
	return u.String(), nil
}

func (p places) parse(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || len(raw) > 2048 || u.Opaque != "":
		return nil, errors.New("is not a URL")
	case u.User != nil || u.Fragment != "":
		return nil, errors.New("has parts that none of SNS's has")
	case p.trusted != nil:
		return u, p.below(u)
	case u.Scheme != "https":
		return nil, errors.New("is not https")
	case !amazonHost.MatchString(u.Host):
		return nil, errors.New("is not on a host of SNS")
	}
	return u, nil
}

// below: the simulator's host and port, in or under its path.
func (p places) below(u *url.URL) error {
	base := strings.TrimSuffix(p.trusted.Path, "/") + "/"
	if u.Scheme != p.trusted.Scheme || u.Host != p.trusted.Host ||
		!strings.HasPrefix(u.Path, base) || path.Clean(u.Path) != u.Path {
		return errors.New("is not below the trusted URL")
	}
	return nil
}
