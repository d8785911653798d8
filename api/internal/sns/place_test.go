package sns_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"email-gateway/api/internal/sns"
)

func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		certPath,
		"https://sns.sa-east-1.amazonaws.com/SimpleNotificationService-0123.pem",
		"https://sns.us-gov-west-1.amazonaws.com/SimpleNotificationService-0123.pem",
		"https://sns.cn-north-1.amazonaws.com.cn/SimpleNotificationService-0123.pem",
	} {
		if err := sns.CertificatePlace(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, hostile := range []string{
		"", "a.pem", "//sns.us-east-1.amazonaws.com/a.pem", "https:a.pem", "https:///a.pem", "%",
		"http://sns.us-east-1.amazonaws.com/a.pem",
		"ftp://sns.us-east-1.amazonaws.com/a.pem",
		"file:///etc/a.pem",
		"https://sns.us-east-1.amazonaws.com:443/a.pem",
		"https://sns.us-east-1.amazonaws.com:8443/a.pem",
		"https://sns.us-east-1.amazonaws.com:/a.pem",
		"https://user@sns.us-east-1.amazonaws.com/a.pem",
		"https://user:pass@sns.us-east-1.amazonaws.com/a.pem",
		"https://sns.us-east-1.amazonaws.com@attacker.example/a.pem",
		"https://sns.us-east-1.amazonaws.com.attacker.example/a.pem",
		"https://sns.us-east-1.amazonaws.com./a.pem",
		"https://attacker.example/sns.us-east-1.amazonaws.com/a.pem",
		"https://attacker.example#sns.us-east-1.amazonaws.com/a.pem",
		"https://attacker.example\\@sns.us-east-1.amazonaws.com/a.pem",
		"https://sns.us-east-1.amazonaws.com\\.attacker.example/a.pem",
		"https://snsXus-east-1.amazonaws.com/a.pem",
		"https://sns.attacker.us-east-1.amazonaws.com/a.pem",
		"https://sns..amazonaws.com/a.pem",
		"https://sns.s3.amazonaws.com.evil/a.pem",
		"https://sns.us-east-1.amazonaws.com.cn.evil/a.pem",
		"https://bucket.s3.amazonaws.com/a.pem",
		"https://amazonaws.com/a.pem",
		"https://SNS.us-east-1.amazonaws.com/a.pem",
		"https://127.0.0.1/a.pem", "https://[::1]/a.pem", "https://169.254.169.254/latest/a.pem",
		"https://sns.us-east-1.amazonaws.com/a.pem?x", "https://sns.us-east-1.amazonaws.com/a.pem?",
		"https://sns.us-east-1.amazonaws.com/?Action=x&y=a.pem",
		"https://sns.us-east-1.amazonaws.com/a.pem#x",
		"https://sns.us-east-1.amazonaws.com/a.txt", "https://sns.us-east-1.amazonaws.com/",
		"https://sns.us-east-1.amazonaws.com/a/b.pem",
		"https://sns.us-east-1.amazonaws.com/..%2fb.pem",
		"https://sns.us-east-1.amazonaws.com/a%0d%0a.pem",
		"https://sns.us-east-1.amazonaws.com/" + strings.Repeat("a", 3000) + ".pem",
		" https://sns.us-east-1.amazonaws.com/a.pem",
		"https://sns.us-east-1.amazonaws.com\n/a.pem",
	} {
		if sns.CertificatePlace(hostile) == nil {
			t.Errorf("%q passed", hostile)
		}
	}
	if err := sns.ConfirmationPlace(confirmation().SubscribeURL); err != nil {
		t.Error(err)
	}
	for _, hostile := range []string{
		"http://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription", "https://169.254.169.254/?Action=ConfirmSubscription",
		"https://attacker.example/?Action=ConfirmSubscription", "https://a@sns.us-east-1.amazonaws.com/?x", "https://sns.us-east-1.amazonaws.com:22/?x",
	} {
		if sns.ConfirmationPlace(hostile) == nil {
			t.Errorf("%q passed", hostile)
		}
	}
}

func TestConfirm(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int // 0 = there is no network
		change func(*sns.Message)
		want   error
		asked  int
	}{
		"taken":      {200, nil, nil, 1},
		"refused":    {403, nil, sns.ErrUnreachable, 1},
		"moved":      {302, nil, sns.ErrUnreachable, 1},
		"no network": {0, nil, sns.ErrUnreachable, 1},
		"elsewhere":  {200, func(m *sns.Message) { m.SubscribeURL = "https://attacker.example/" }, sns.ErrForged, 0},
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
		if !errors.Is(err, tt.want) || len(a.requests()) != tt.asked {
			t.Errorf("%s: %v, asked for %v", name, err, a.requests())
		}
		if err != nil && strings.Contains(err.Error(), m.Token) {
			t.Errorf("%s: the error tells the token: %v", name, err)
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
		"two messages":    {append(body(t, good, nil), "{}"...), "follows"},
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
			t.Errorf("%s: %v, want a word of %s", name, err, tt.want)
		}
	}
}
