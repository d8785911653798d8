package sns

import (
	"errors"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// allowedURLs validates the URLs that may be fetched.
type allowedURLs struct {
	trusted *url.URL // nil = Amazon's hosts
}

var (
	// topicARN contains the region of the topic, which determines its host. FIFO topics do not match:
	// they deliver to queues only.
	topicARN = regexp.MustCompile(`^arn:(aws|aws-us-gov|aws-cn):sns:([a-z]{2}(?:-[a-z]+)+-[0-9]{1,2}):[0-9]{12}:[A-Za-z0-9_-]{1,256}$`)
	// certificateFile matches the names of SNS's certificates.
	certificateFile = regexp.MustCompile(`^/SimpleNotificationService-[0-9a-f]{1,128}\.pem$`)
)

// IsTopic reports whether messages of a topic with this ARN can be verified.
func IsTopic(arn string) bool { return topicARN.MatchString(arn) }

// maxURL is longer than a SubscribeURL, whose token has about 300 characters.
const maxURL = 2048

// certificate validates the URL of the signing certificate of a topic's message.
//
// The URL is compared as text, not parsed: ports, users, upper case, queries and encoded characters
// are never part of what SNS writes. The host must be that of the topic's region: other names below
// amazonaws.com, such as sns.s3-us-west-2.amazonaws.com, belong to customers' buckets.
func (a allowedURLs) certificate(raw, topic string) (string, error) {
	if a.trusted != nil {
		return a.trustedCertificate(raw)
	}
	base, err := endpoint(topic)
	if err != nil {
		return "", err
	}
	file, ok := strings.CutPrefix(raw, base)
	if !ok {
		return "", errors.New("is not on SNS's host of the topic's region")
	}
	if !certificateFile.MatchString(file) {
		return "", errors.New("does not name a certificate of SNS")
	}
	return raw, nil
}

// confirmation validates the URL that confirms a topic's subscription: it must be the SNS API request
// that confirms this token for this topic.
func (a allowedURLs) confirmation(raw, topic, token string) (string, error) {
	if a.trusted != nil {
		u, err := a.below(raw)
		if err != nil {
			return "", err
		}
		return u.String(), nil
	}
	base, err := endpoint(topic)
	if err != nil {
		return "", err
	}
	query, ok := strings.CutPrefix(raw, base+"/?")
	if !ok || len(raw) > maxURL {
		return "", errors.New("is not on SNS's host of the topic's region")
	}
	values, err := url.ParseQuery(query)
	if err != nil || strings.Contains(query, "#") || len(values) != 3 {
		return "", errors.New("does not confirm a subscription")
	}
	for name, want := range map[string]string{"Action": "ConfirmSubscription", "TopicArn": topic, "Token": token} {
		if got := values[name]; len(got) != 1 || got[0] != want {
			return "", errors.New("does not confirm the topic and token of the message")
		}
	}
	// Encode the validated values again, so that nothing unchecked is requested.
	return base + "/?" + values.Encode(), nil
}

// endpoint returns the prefix of every SNS URL for a topic.
func endpoint(topic string) (string, error) {
	found := topicARN.FindStringSubmatch(topic)
	if found == nil {
		return "", errors.New("cannot be checked: TopicArn is not the ARN of a standard topic in a known AWS partition")
	}
	partition, region := found[1], found[2]
	china := strings.HasPrefix(region, "cn-")
	if china != (partition == "aws-cn") {
		return "", errors.New("belongs to a topic whose region is not of its partition")
	}
	host := "https://sns." + region + ".amazonaws.com"
	if china {
		host += ".cn"
	}
	return host, nil
}

func (a allowedURLs) trustedCertificate(raw string) (string, error) {
	u, err := a.below(raw)
	switch {
	case err != nil:
		return "", err
	case u.RawQuery != "" || u.ForceQuery:
		return "", errors.New("has a query")
	case !strings.HasSuffix(u.Path, ".pem"):
		return "", errors.New("does not name a .pem file")
	}
	return u.String(), nil
}

// below accepts URLs with the simulator's host and port, in or under its path.
func (a allowedURLs) below(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || len(raw) > maxURL || u.Opaque != "":
		return nil, errors.New("is not a URL")
	case u.User != nil || u.Fragment != "":
		return nil, errors.New("has a user or a fragment, which SNS URLs never have")
	}
	base := strings.TrimSuffix(a.trusted.Path, "/") + "/"
	if u.Scheme != a.trusted.Scheme || u.Host != a.trusted.Host ||
		!strings.HasPrefix(u.Path, base) || path.Clean(u.Path) != u.Path {
		return nil, errors.New("is not below the trusted URL")
	}
	return u, nil
}
