package webhook_test

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	format "email-gateway/shared/standardwebhook"
	"email-gateway/worker/internal/webhook"
)

func secret(t *testing.T) format.Secret {
	t.Helper()
	s, err := format.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The specification's own library verifies a request, with the new and the old secret.
func TestSender_SpecificationVerifies(t *testing.T) {
	t.Parallel()
	fresh, old := secret(t), secret(t)
	var verified atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		for _, s := range []format.Secret{fresh, old} {
			hook, err := standard.NewWebhook(s.Text())
			if err != nil {
				t.Error(err)
				return
			}
			if err := hook.Verify(body, r.Header); err != nil {
				t.Error(err)
			}
			verified.Add(1)
		}
		if r.Header.Get("Content-Type") != "application/json" || r.Header.Get("webhook-id") != "evt_1" {
			t.Errorf("%v", r.Header)
		}
	}))
	defer server.Close()
	sender := webhook.NewSender(webhook.SenderParams{AllowPrivate: true})
	defer sender.Close()
	o, err := sender.Send(t.Context(), webhook.Message{URL: server.URL, ID: "evt_1", Body: []byte(`{"type":"email.sent"}`), Secrets: []format.Secret{fresh, old}})
	if err != nil || !o.Delivered || o.Status != http.StatusOK || verified.Load() != 2 {
		t.Errorf("%+v, %v, %d verified", o, err, verified.Load())
	}
}

func TestSender_Outcomes(t *testing.T) {
	t.Parallel()
	followed := atomic.Bool{}
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	defer target.Close()
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
		case "/busy":
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/forever":
			w.Header().Set("Retry-After", "99999999")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/gone":
			w.WriteHeader(http.StatusGone)
		case "/hang":
			<-hang
		case "/cut":
			panic(http.ErrAbortHandler)
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
					return
				}
			}
		case "/headers":
			w.Header().Set("X-Large", strings.Repeat("x", 100<<10))
		}
	}))
	defer server.Close()
	defer close(hang)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + closed.Addr().String()
	_ = closed.Close()
	sender := webhook.NewSender(webhook.SenderParams{AllowPrivate: true})
	impatient := webhook.NewSender(webhook.SenderParams{AllowPrivate: true, Timeout: 200 * time.Millisecond})
	for url, want := range map[string]webhook.Outcome{
		server.URL + "/":         {Delivered: true, Status: 200},
		server.URL + "/endless":  {Delivered: true, Status: 200},
		server.URL + "/redirect": {Status: 307, Code: "HTTP_307"},
		server.URL + "/busy":     {Status: 429, Code: "HTTP_429", RetryAfter: 2 * time.Minute},
		server.URL + "/forever":  {Status: 503, Code: "HTTP_503", RetryAfter: 24 * time.Hour},
		server.URL + "/gone":     {Status: 410, Code: "HTTP_410"},
		server.URL + "/hang":     {Code: webhook.CodeTimeout},
		server.URL + "/cut":      {Code: webhook.CodeConnection},
		server.URL + "/headers":  {Code: webhook.CodeConnection},
		secure.URL:               {Code: webhook.CodeTLS}, // its certificate is not trusted
		refused:                  {Code: webhook.CodeRefused},
		"ftp://example.com/":     {Code: webhook.CodeURL},
	} {
		s := sender
		if strings.HasSuffix(url, "/hang") {
			s = impatient
		}
		o, err := s.Send(t.Context(), webhook.Message{URL: url, ID: "evt_1", Body: []byte("{}"), Secrets: []format.Secret{secret(t)}})
		o.Took = 0
		if err != nil || o != want {
			t.Errorf("%s: %+v, %v; want %+v", url, o, err, want)
		}
	}
	if followed.Load() {
		t.Error("a redirect was followed")
	}
	if !(webhook.Outcome{Status: 410}).Gone() {
		t.Error("410 is not gone")
	}
}

// A cancelled attempt has no outcome: it is repeated.
func TestSender_Cancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the client is gone
		cancel()
		<-r.Context().Done()
	}))
	defer server.Close()
	sender := webhook.NewSender(webhook.SenderParams{AllowPrivate: true})
	o, err := sender.Send(ctx, webhook.Message{URL: server.URL, ID: "evt_1", Body: []byte("{}")})
	if err == nil {
		t.Errorf("%+v", o)
	}
}

// https is required and certificates are verified.
func TestSender_TLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	m := webhook.Message{URL: server.URL, ID: "evt_1", Body: []byte("{}"), Secrets: []format.Secret{secret(t)}}
	trusting := webhook.NewSender(webhook.SenderParams{AllowPrivate: true, RootCAs: pool})
	if o, err := trusting.Send(t.Context(), m); err != nil || !o.Delivered {
		t.Errorf("%+v, %v", o, err)
	}
	guarded := webhook.NewSender(webhook.SenderParams{RootCAs: pool})
	m.URL = "http://example.com/"
	if o, err := guarded.Send(t.Context(), m); err != nil || o.Code != webhook.CodeURL {
		t.Errorf("http: %+v, %v", o, err)
	}
}

// names is a DNS server for one test: it answers A and AAAA queries with the next address of the name's list,
// and repeats the last one.
type names struct {
	net.PacketConn
	lists map[string]*list
}

type list struct {
	addresses []string
	asked     atomic.Int64
}

func startNames(t *testing.T, lists map[string][]string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	n := names{PacketConn: conn, lists: map[string]*list{}}
	for name, addresses := range lists {
		n.lists[name] = &list{addresses: addresses}
	}
	go n.serve()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func (n names) serve() {
	packet := make([]byte, 1500)
	for {
		size, from, err := n.ReadFrom(packet)
		if err != nil {
			return
		}
		if size < 17 {
			continue
		}
		_, _ = n.WriteTo(n.answer(packet[:size]), from)
	}
}

func (n names) answer(query []byte) []byte {
	var labels []string
	at := 12
	for query[at] != 0 {
		length := int(query[at])
		labels = append(labels, string(query[at+1:at+1+length]))
		at += 1 + length
	}
	kind := binary.BigEndian.Uint16(query[at+1:])
	answer := append([]byte{}, query[:at+5]...)
	answer[2], answer[3] = 0x81, 0x80
	copy(answer[6:12], make([]byte, 6))
	l := n.lists[strings.ToLower(strings.Join(labels, "."))]
	if l == nil {
		answer[3] = 0x83 // no such name
		return answer
	}
	address := net.ParseIP(l.addresses[min(int(l.asked.Load()), len(l.addresses)-1)])
	data := address.To4()
	want := uint16(1)
	if data == nil {
		data, want = address.To16(), 28
	}
	if kind != want {
		return answer
	}
	l.asked.Add(1)
	answer[7] = 1
	answer = append(answer, 0xc0, 12)
	answer = binary.BigEndian.AppendUint16(answer, kind)
	answer = append(answer, 0, 1, 0, 0, 0, 0)
	answer = binary.BigEndian.AppendUint16(answer, uint16(len(data)))
	return append(answer, data...)
}

// No request reaches an address that is not public, however the endpoint names it.
func TestSender_RefusesPrivateAddresses(t *testing.T) {
	t.Parallel()
	reached := atomic.Bool{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	special := map[string]string{
		"loopback": "127.0.0.1", "loopback-net": "127.9.9.9", "loopback6": "::1", "mapped": "::ffff:127.0.0.1", "private-10": "10.0.0.1",
		"private-172": "172.16.0.1", "private-192": "192.168.1.1", "link-local": "169.254.1.1", "metadata": "169.254.169.254",
		"metadata-ecs": "169.254.170.2", "metadata6": "fd00:ec2::254", "metadata-alibaba": "100.100.100.200", "metadata-oracle": "192.0.0.192",
		"metadata-azure": "168.63.129.16", "link-local6": "fe80::1", "unique-local": "fc00::1", "multicast": "224.0.0.1", "multicast6": "ff02::1",
		"unspecified": "0.0.0.0", "unspecified6": "::", "this-network": "0.1.2.3", "cgnat": "100.64.0.1", "benchmark": "198.18.0.1",
		"broadcast": "255.255.255.255", "reserved": "240.0.0.1", "nat64": "64:ff9b::7f00:1", "nat64-local": "64:ff9b:1::7f00:1",
		"6to4": "2002:7f00:1::", "teredo": "2001:0:7f00:1::", "compatible": "::7f00:1", "site-local": "fec0::1", "documentation": "2001:db8::1",
	}
	lists := map[string][]string{}
	for name, address := range special {
		lists[name+".example"] = []string{address}
	}
	// A name that has a public address when it is looked up, and another one when it is connected to.
	lists["rebinding.example"] = []string{"8.8.8.8", "127.0.0.1"}
	resolver := startNames(t, lists)
	if found, err := resolver.LookupNetIP(t.Context(), "ip4", "rebinding.example"); err != nil || !format.PublicAddress(found[0]) {
		t.Fatal(found, err)
	}
	sender := webhook.NewSender(webhook.SenderParams{RootCAs: pool, Resolver: resolver})
	send := func(url string) webhook.Outcome {
		o, err := sender.Send(t.Context(), webhook.Message{URL: url, ID: "evt_1", Body: []byte("{}"), Secrets: []format.Secret{secret(t)}})
		if err != nil {
			t.Error(err)
		}
		return o
	}
	for name, address := range special {
		if o := send("https://" + name + ".example:" + port + "/"); o.Code != webhook.CodeAddressRefused {
			t.Errorf("%s (%s): %+v", name, address, o)
		}
		if o := send("https://" + net.JoinHostPort(address, port) + "/"); o.Code != webhook.CodeURL {
			t.Errorf("%s: %+v", address, o)
		}
	}
	for range 2 {
		if o := send("https://rebinding.example:" + port + "/"); o.Code != webhook.CodeAddressRefused {
			t.Errorf("rebinding: %+v", o)
		}
	}
	for _, url := range []string{"https://localhost:" + port, "https://2130706433:" + port, "https://0x7f000001:" + port, "https://127.1:" + port, "https://[::ffff:7f00:1]:" + port} {
		if o := send(url); o.Delivered || o.Status != 0 {
			t.Errorf("%s: %+v", url, o)
		}
	}
	if reached.Load() {
		t.Error("a request reached a private address")
	}
	open := webhook.NewSender(webhook.SenderParams{AllowPrivate: true, RootCAs: pool})
	if o, err := open.Send(t.Context(), webhook.Message{URL: server.URL, ID: "evt_1", Body: []byte("{}")}); err != nil || !o.Delivered || !reached.Load() {
		t.Errorf("permitted: %+v, %v", o, err)
	}
}

// No request reaches a network that the operator refuses, by a name or by a literal address, also if private addresses
// are permitted.
func TestSender_RefusedNetworks(t *testing.T) {
	t.Parallel()
	reached := atomic.Bool{}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer server.Close()
	address, err := netip.ParseAddrPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	resolver := startNames(t, map[string][]string{
		"loopback.example": {"127.0.0.1"}, "mapped.example": {"::ffff:127.0.0.1"}, "public.example": {"8.8.8.8"}, "subnet.example": {"2a05:d014:0:1::5"},
	})
	networks := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("8.8.8.0/24"), netip.MustParsePrefix("2a05:d014::/36")}
	for _, c := range []struct {
		private bool
		host    string
		code    string
	}{
		{true, "loopback.example", webhook.CodeAddressRefused},
		{true, "mapped.example", webhook.CodeAddressRefused},
		{true, "127.0.0.1", webhook.CodeURL},
		{true, "localhost", webhook.CodeAddressRefused},
		{false, "public.example", webhook.CodeAddressRefused},
		{false, "subnet.example", webhook.CodeAddressRefused},
		{false, "8.8.8.8", webhook.CodeURL},
	} {
		sender := webhook.NewSender(webhook.SenderParams{AllowPrivate: c.private, RefusedNetworks: networks, Resolver: resolver})
		scheme := map[bool]string{true: "http", false: "https"}[c.private]
		url := fmt.Sprintf("%s://%s:%d/", scheme, c.host, address.Port())
		o, err := sender.Send(t.Context(), webhook.Message{URL: url, ID: "evt_1", Body: []byte("{}")})
		if err != nil || o.Code != c.code {
			t.Errorf("%s: %+v, %v, want %s", url, o, err, c.code)
		}
	}
	if reached.Load() {
		t.Error("a request reached a refused network")
	}
	others := webhook.NewSender(webhook.SenderParams{AllowPrivate: true, RefusedNetworks: networks[1:]})
	if o, err := others.Send(t.Context(), webhook.Message{URL: server.URL, ID: "evt_1", Body: []byte("{}")}); err != nil || !o.Delivered {
		t.Errorf("in no refused network: %+v, %v", o, err)
	}
}
