package blob

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// location is a parsed storage URL: a folder has a path, S3 a bucket.
type location struct {
	path   string
	bucket string
	url    *url.URL
}

// The parameters of an s3 URL supported by gocloud, booleans separately.
var (
	textParameters = []string{
		"region", "endpoint", "profile", "role", "ssetype", "kmskeyid", "rate_limiter_capacity",
		"request_checksum_calculation", "response_checksum_validation",
	}
	boolParameters = []string{
		"s3ForcePathStyle", "use_path_style", "disable_https", "hostname_immutable", "accelerate", "dualstack", "fips", "anonymous",
	}
	bucketPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
)

// CheckURL reports what is wrong with a storage URL. Valid URLs are:
//
//	file:///an/absolute/path
//	s3://bucket?region=sa-east-1
//	s3://bucket?region=us-east-1&endpoint=http://127.0.0.1:7070&s3ForcePathStyle=true
//
// Credentials for S3 come from the AWS SDK's default sources. Errors never quote the URL, which
// might contain some.
func CheckURL(text string) error {
	_, err := parse(text)
	return err
}

func parse(text string) (location, error) {
	u, err := url.Parse(text)
	if err != nil {
		return location{}, errors.New("not a URL")
	}
	if u.User != nil {
		return location{}, errors.New("credentials do not belong in the URL: the AWS SDK reads AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and its other usual places")
	}
	if u.Fragment != "" {
		return location{}, errors.New("has a #fragment")
	}
	switch u.Scheme {
	case "file":
		return parseFile(u)
	case "s3":
		return parseS3(u)
	}
	return location{}, errors.New("must begin with file:/// or s3://")
}

func parseFile(u *url.URL) (location, error) {
	switch {
	case u.Host != "" || !filepath.IsAbs(u.Path):
		return location{}, errors.New("a folder must be written with three slashes: file:///an/absolute/path")
	case u.RawQuery != "":
		return location{}, errors.New("a file URL takes no parameters")
	}
	path := filepath.Clean(u.Path)
	if path == "/" {
		return location{}, errors.New("names the root of the file system")
	}
	return location{path: path, url: u}, nil
}

func parseS3(u *url.URL) (location, error) {
	switch {
	case !bucketPattern.MatchString(u.Host):
		return location{}, errors.New("an s3 URL must name a bucket of 3 to 63 lower-case letters, digits, dots and dashes: s3://bucket?region=…")
	case u.Path != "" && u.Path != "/":
		return location{}, errors.New("an s3 URL names a bucket and no path in it")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return location{}, errors.New("has parameters that cannot be read")
	}
	for name, values := range query {
		if err := checkParameter(name, values); err != nil {
			return location{}, err
		}
	}
	return location{bucket: u.Host, url: u}, nil
}

func checkParameter(name string, values []string) error {
	if len(values) > 1 {
		return fmt.Errorf("parameter %s is set twice", name)
	}
	switch {
	case name == "endpoint":
		at, err := url.Parse(values[0])
		if err != nil || (at.Scheme != "http" && at.Scheme != "https") || at.Host == "" || at.User != nil || at.RawQuery != "" {
			return errors.New("parameter endpoint must be http://host:port or https://host:port")
		}
	case slices.Contains(boolParameters, name):
		if _, err := strconv.ParseBool(values[0]); err != nil {
			return fmt.Errorf("parameter %s must be true or false", name)
		}
	case !slices.Contains(textParameters, name):
		return fmt.Errorf("unknown parameter %.40q, known are %s", name,
			strings.Join(slices.Concat(textParameters, boolParameters), ", "))
	case values[0] == "":
		return fmt.Errorf("parameter %s is empty", name)
	}
	return nil
}

// base is the URL of the storage's files without their key.
func (l location) base() string {
	if l.path != "" {
		return (&url.URL{Scheme: "file", Path: l.path + "/"}).String()
	}
	return "s3://" + l.bucket + "/"
}
