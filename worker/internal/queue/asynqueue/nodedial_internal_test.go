package asynqueue

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"email-gateway/shared/waittest"
)

// A node that announces an IP address may have a certificate for the address, or for the URL's only host.
func TestNodeDialer_Names(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		certificate x509.Certificate
		hosts       []string
		refused     bool
	}{
		"the announced address":            {x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, []string{"redis.example:6379"}, false},
		"the announced address of many":    {x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, []string{"redis.example:6379", "b.example:6379"}, false},
		"the URL's only host":              {x509.Certificate{DNSNames: []string{"redis.example"}}, []string{"redis.example:6379"}, false},
		"the first of the URL's hosts":     {x509.Certificate{DNSNames: []string{"redis.example"}}, []string{"redis.example:6379", "b.example:6379"}, true},
		"another host":                     {x509.Certificate{DNSNames: []string{"other.example"}}, []string{"redis.example:6379"}, true},
		"another address and the URL's ip": {x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 9)}}, []string{"127.0.0.9:6379"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, roots := tlsServer(t, tt.certificate)
			dial := nodeDialer(&tls.Config{RootCAs: roots, ServerName: "redis.example", MinVersion: tls.VersionTLS12}, tt.hosts, waittest.Limit)
			conn, err := dial(t.Context(), "tcp", server.Listener.Addr().String())
			if err == nil {
				_ = conn.Close()
			}
			if (err != nil) != tt.refused {
				t.Errorf("err = %v, refused want %v", err, tt.refused)
			}
		})
	}
}

// tlsServer starts a TLS server with a certificate for the names of the template.
func tlsServer(t *testing.T, template x509.Certificate) (server *httptest.Server, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotAfter = big.NewInt(1), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(certificate)
	server = httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, roots
}
