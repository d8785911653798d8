package sns_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"email-gateway/api/internal/sns"
)

// regional is the ARN of a topic of a region.
func regional(partition, region string) string {
	return "arn:" + partition + ":sns:" + region + ":123456789012:ses-events"
}

func TestCertificateURL(t *testing.T) {
	t.Parallel()
	for topic, good := range map[string]string{
		topic:                                   certPath,
		regional("aws", "sa-east-1"):            "https://sns.sa-east-1.amazonaws.com/SimpleNotificationService-0123456789abcdef0123456789abcdef.pem",
		regional("aws", "ap-southeast-4"):       "https://sns.ap-southeast-4.amazonaws.com/SimpleNotificationService-0123.pem",
		regional("aws-us-gov", "us-gov-west-1"): "https://sns.us-gov-west-1.amazonaws.com/SimpleNotificationService-0123.pem",
		regional("aws-cn", "cn-north-1"):        "https://sns.cn-north-1.amazonaws.com.cn/SimpleNotificationService-0123.pem",
		regional("aws-cn", "cn-northwest-1"):    "https://sns.cn-northwest-1.amazonaws.com.cn/SimpleNotificationService-0123.pem",
	} {
		if err := sns.CertificateURL(good, topic); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	const file, here = "/SimpleNotificationService-0123.pem", "https://sns.us-east-1.amazonaws.com"
	for _, hostile := range []string{
		"", "a.pem", file, "//sns.us-east-1.amazonaws.com" + file, "https:" + file, "https://" + file, "%",
		// Other hosts below amazonaws.com are a customer's.
		"https://sns.s3-us-west-2.amazonaws.com/evil.pem", "https://sns.s3-us-west-2.amazonaws.com" + file, "https://sns.s3.amazonaws.com" + file,
		"https://sns.s3-us-east-1.amazonaws.com" + file, "https://sns.s3-accelerate.amazonaws.com" + file, "https://bucket.s3.amazonaws.com" + file,
		"https://sns.execute-api.us-east-1.amazonaws.com" + file, "https://amazonaws.com" + file, "https://sns.amazonaws.com" + file, "https://sns..amazonaws.com" + file,
		"https://sns.attacker.us-east-1.amazonaws.com" + file, "https://snsXus-east-1.amazonaws.com" + file, "https://sns-us-east-1.amazonaws.com" + file,
		// Another region, another partition.
		"https://sns.us-west-2.amazonaws.com" + file, "https://sns.us-east-10.amazonaws.com" + file, "https://sns.us-east-1.amazonaws.com.cn" + file,
		"https://sns.cn-north-1.amazonaws.com.cn" + file,
		// Schemes, ports, users.
		"http://sns.us-east-1.amazonaws.com" + file, "ftp://sns.us-east-1.amazonaws.com" + file, "file://sns.us-east-1.amazonaws.com" + file,
		"https://sns.us-east-1.amazonaws.com:443" + file, "https://sns.us-east-1.amazonaws.com:8443" + file, "https://sns.us-east-1.amazonaws.com:" + file,
		"https://user@sns.us-east-1.amazonaws.com" + file, "https://user:pass@sns.us-east-1.amazonaws.com" + file, "https://@sns.us-east-1.amazonaws.com" + file,
		"https://sns.us-east-1.amazonaws.com@attacker.example" + file, "https://sns.us-east-1.amazonaws.com.attacker.example" + file,
		"https://sns.us-east-1.amazonaws.com." + file, "https://attacker.example/sns.us-east-1.amazonaws.com" + file,
		"https://attacker.example#sns.us-east-1.amazonaws.com" + file, `https://attacker.example\@sns.us-east-1.amazonaws.com` + file,
		`https://sns.us-east-1.amazonaws.com\.attacker.example` + file, "https://127.0.0.1" + file, "https://[::1]" + file, "https://169.254.169.254/latest" + file,
		// Upper case and other disguises.
		"HTTPS://sns.us-east-1.amazonaws.com" + file, "https://SNS.us-east-1.amazonaws.com" + file, "https://sns.us-east-1.AmazonAWS.com" + file,
		"https://sns.us-east-1.amazonaws.com%2e" + file, "https://sns%2eus-east-1.amazonaws.com" + file, "https://sns.us-east-1.amazonaws.com。" + file,
		// Paths, queries.
		here, here + "/", here + "/a.pem", here + "/SimpleNotificationService-.pem", here + "/SimpleNotificationService-0123.txt", here + "/SimpleNotificationService-0123",
		here + "/SimpleNotificationService-0123.pem.txt", here + "/simplenotificationservice-0123.pem", here + "/SimpleNotificationService-0123.PEM",
		here + "/SimpleNotificationService-ABCD.pem", here + "/SimpleNotificationService-xyz.pem", here + "/" + file, here + "/a" + file, here + "/.." + file, here + "/." + file,
		here + "/%2e%2e" + file, here + "/SimpleNotificationService-0123/../a.pem", here + "/SimpleNotificationService-0123%2f..%2fa.pem", here + "/SimpleNotificationService-%30123.pem",
		here + "/SimpleNotificationService-0123%2epem", here + "/SimpleNotificationService-0123.pem/", here + "/bucket" + file, here + `\SimpleNotificationService-0123.pem`,
		here + file + "?", here + file + "?x", here + file + "#", here + file + "#x", here + file + ";x", here + file + "%00", here + file + "\n", here + file + " ",
		here + "/?Action=x&y=a.pem", here + "/SimpleNotificationService-" + strings.Repeat("a", 3000) + ".pem", " " + here + file, here + "\n" + file,
	} {
		if sns.CertificateURL(hostile, topic) == nil {
			t.Errorf("%q passed", hostile)
		}
	}
	for topic, certificateURL := range map[string]string{
		"":                                         "https://sns..amazonaws.com" + file,
		"arn:aws:sns::123456789012:ses-events":     "https://sns..amazonaws.com" + file,
		regional("aws", "s3-us-west-2"):            "https://sns.s3-us-west-2.amazonaws.com" + file,
		regional("aws", "cn-north-1"):              "https://sns.cn-north-1.amazonaws.com" + file,
		regional("aws-cn", "us-east-1"):            "https://sns.us-east-1.amazonaws.com.cn" + file,
		regional("aws", "us-east-1.evil.example/"): "https://sns.us-east-1.evil.example/.amazonaws.com" + file,
	} {
		if sns.CertificateURL(certificateURL, topic) == nil {
			t.Errorf("topic %q: %q passed", topic, certificateURL)
		}
	}
}

func TestConfirmationURL(t *testing.T) {
	t.Parallel()
	good := confirmation()
	china := regional("aws-cn", "cn-north-1")
	for url, topic := range map[string]string{
		good.SubscribeURL: topic,
		"https://sns.us-east-1.amazonaws.com/?Token=" + good.Token + "&TopicArn=arn%3Aaws%3Asns%3Aus-east-1%3A123456789012%3Ases-events&Action=ConfirmSubscription": topic,
		"https://sns.cn-north-1.amazonaws.com.cn/?Action=ConfirmSubscription&TopicArn=" + china + "&Token=" + good.Token:                                            china,
	} {
		if err := sns.ConfirmationURL(url, topic, good.Token); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	const here = "https://sns.us-east-1.amazonaws.com"
	query := strings.TrimPrefix(good.SubscribeURL, here+"/?")
	for _, hostile := range []string{
		"", here, here + "/", here + "?" + query, here + "//?" + query, here + "/a?" + query, here + "/%2e?" + query, here + "/..?" + query,
		"http://sns.us-east-1.amazonaws.com/?" + query, "https://sns.us-west-2.amazonaws.com/?" + query, "https://sns.us-east-1.amazonaws.com.cn/?" + query,
		"https://sns.s3-us-west-2.amazonaws.com/?" + query, "https://169.254.169.254/?" + query, "https://attacker.example/?" + query,
		"https://a@sns.us-east-1.amazonaws.com/?" + query, here + ":22/?" + query, here + ":443/?" + query, "https://SNS.us-east-1.amazonaws.com/?" + query, "HTTPS://sns.us-east-1.amazonaws.com/?" + query,
		here + "/?" + query + "#x", here + "/?" + query + "&x=y", here + "/?" + query + "&Action=DeleteTopic", here + "/?" + query + ";x", here + "/?" + query + "%zz",
		here + "/?" + strings.Replace(query, "ConfirmSubscription", "DeleteTopic", 1), here + "/?" + strings.Replace(query, "ses-events", "other", 1),
		here + "/?" + strings.Replace(query, good.Token, "1", 1), here + "/?Action=ConfirmSubscription", here + "/?" + query + strings.Repeat("a", 3000),
	} {
		if sns.ConfirmationURL(hostile, topic, good.Token) == nil {
			t.Errorf("%q passed", hostile)
		}
	}
}

func TestConfirm(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status  int // 0 = there is no network
		change  func(*sns.Message)
		want    error
		fetches int
	}{
		"taken":        {200, nil, nil, 1},
		"refused":      {403, nil, sns.ErrUnreachable, 1},
		"moved":        {302, nil, sns.ErrUnreachable, 1},
		"no network":   {0, nil, sns.ErrUnreachable, 1},
		"other region": {200, func(m *sns.Message) { m.SubscribeURL = strings.Replace(m.SubscribeURL, "us-east-1", "us-west-2", 1) }, sns.ErrForged, 0},
		"elsewhere":    {200, func(m *sns.Message) { m.SubscribeURL = "https://attacker.example/" }, sns.ErrForged, 0},
	} {
		a := newAmazon(t, nil)
		a.answer = func(*http.Request) (*http.Response, error) {
			if tt.status == 0 {
				return nil, errors.New("no route")
			}
			return reply(tt.status, []byte("<Token>")), nil
		}
		m := confirmation()
		if tt.change != nil {
			tt.change(&m)
		}
		err := a.verifier(nil).Confirm(t.Context(), m)
		if !errors.Is(err, tt.want) || len(a.requests()) != tt.fetches {
			t.Errorf("%s: error %v, fetched %v", name, err, a.requests())
		}
		if err != nil && strings.Contains(err.Error(), m.Token) {
			t.Errorf("%s: the error contains the token: %v", name, err)
		}
	}
}

func TestParse_Refuses(t *testing.T) {
	t.Parallel()
	good := newAmazon(t, nil).sign(t, notification())
	drop := func(name string) func(map[string]any) { return func(f map[string]any) { delete(f, name) } }
	set := func(name string, value any) func(map[string]any) { return func(f map[string]any) { f[name] = value } }
	for name, tt := range map[string]struct {
		text []byte
		want string
	}{
		"nothing":         {nil, "JSON"},
		"no JSON":         {[]byte("eventType=Send"), "JSON"},
		"a list":          {[]byte("[]"), "JSON"},
		"an SES event":    {[]byte(`{"eventType":"Send","mail":{}}`), "Type"},
		"two messages":    {append(body(t, good, nil), "{}"...), "data after the SNS message"},
		"no type":         {body(t, good, drop("Type")), "Type"},
		"unknown type":    {body(t, good, set("Type", "Notification2")), "Type"},
		"no id":           {body(t, good, drop("MessageId")), "MessageId"},
		"odd id":          {body(t, good, set("MessageId", "a b")), "MessageId"},
		"long id":         {body(t, good, set("MessageId", strings.Repeat("a", 101))), "MessageId"},
		"no topic":        {body(t, good, drop("TopicArn")), "TopicArn"},
		"no message":      {body(t, good, drop("Message")), "Message"},
		"message no text": {body(t, good, set("Message", map[string]any{"eventType": "Send"})), "Message"},
		"no time":         {body(t, good, drop("Timestamp")), "Timestamp"},
		"odd time":        {body(t, good, set("Timestamp", "yesterday")), "Timestamp"},
		"no signature":    {body(t, good, drop("Signature")), "Signature"},
		"no place":        {body(t, good, drop("SigningCertURL")), "SigningCertURL"},
		"no token":        {body(t, confirmation(), func(f map[string]any) { f["Signature"] = "A"; delete(f, "Token") }), "Token"},
	} {
		_, err := sns.Parse(tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v does not contain %s", name, err, tt.want)
		}
	}
}
