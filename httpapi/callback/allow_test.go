package callback

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/signalbox/signalbox/test/hostile"
)

func TestAllowEntries(t *testing.T) {
	for text, fine := range map[string]bool{
		"hooks.example": true, "hooks.example:8080": true, "HOOKS.example": true, "a_b-c": true, "10.1.2.3": true, "10.1.2.3:80": true,
		"10.0.0.0/8": true, "10.0.0.0/8:9000": true, "::1": true, "[::1]:80": true, "[::1]": true, "fd00::/8": true, "[fd00::/8]:80": true,
		"": false, ":80": false, "hooks.example:": false, "hooks.example:0": false, "hooks.example:65536": false, "hooks.example:http": false,
		"http://hooks.example": false, "hooks.example/": false, "*.example": false, "a..b": false, ".example": false, "hooks.example.": false,
		"127.1": false, "2130706433": false, "0x7f.1": false, "0x7f000001": false, "0177.0.0.1": false, "1.2.3.4.5": false, "127.0.0.256": false,
		"10.0.0.0/33": false, "[10.0.0.1]:80": false, "[::1": false, "[hooks.example]:80": false, "fe80::1%eth0": false, "user@hooks.example": false,
		"bücher.example": false, "a b": false,
	} {
		if _, err := parseAllow([]string{text}); (err == nil) != fine {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A URL may name a host only as it is listed, and only on the listed port.
func TestCheck(t *testing.T) {
	list := hostile.Begin(t, "callback")
	s, err := New([]string{"hooks.example", "Other.example:8443", "10.1.0.0/16", "127.0.0.1:9000", "[::1]:9000"})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]error{
		"http://hooks.example":                         nil,
		"http://hooks.example/a/b?c=d":                 nil,
		"https://HOOKS.example:443/":                   nil,
		"http://hooks.example:80/":                     nil,
		"https://other.example:8443/":                  nil,
		"http://other.example:8443/":                   nil,
		"http://10.1.255.1/":                           nil,
		"http://127.0.0.1:9000/":                       nil,
		"http://[::1]:9000/":                           nil,
		"http://[0:0:0:0:0:0:0:1]:9000/":               nil,
		"http://[::ffff:127.0.0.1]:9000/":              nil,
		"http://hooks.example:8080/":                   errNotAllowed,
		"http://hooks.example:443/":                    errNotAllowed,
		"https://other.example/":                       errNotAllowed,
		"http://10.2.0.1/":                             errNotAllowed,
		"http://10.1.0.1:8080/":                        errNotAllowed,
		"http://127.0.0.1/":                            errNotAllowed,
		"http://127.0.0.2:9000/":                       errNotAllowed,
		"http://127.1:9000/":                           errNotAllowed,
		"http://2130706433:9000/":                      errNotAllowed,
		"http://0x7f000001:9000/":                      errNotAllowed,
		"http://0177.0.0.1:9000/":                      errNotAllowed,
		"http://localhost:9000/":                       errNotAllowed,
		"http://0:9000/":                               errNotAllowed,
		"http://[::]:9000/":                            errNotAllowed,
		"http://[::1%25lo]:9000/":                      errNotAllowed,
		"http://[fe80::1%25eth0]/":                     errNotAllowed,
		"http://hooks.example./":                       errNotAllowed,
		"http://hooks.example.evil.example/":           errNotAllowed,
		"http://evil.example/?hooks.example":           errNotAllowed,
		"http://169.254.169.254/latest/":               errNotAllowed,
		"http://93.184.215.14/":                        errNotAllowed,
		"http://①②⑦.⓪.⓪.①:9000/":                       errNotAllowed,
		"ftp://hooks.example/":                         errNoAddress,
		"file:///etc/passwd":                           errNoAddress,
		"gopher://127.0.0.1:9000/_":                    errNoAddress,
		"hooks.example":                                errNoAddress,
		"//hooks.example/":                             errNoAddress,
		"http:hooks.example":                           errNoAddress,
		"http://":                                      errNoAddress,
		"http://user@hooks.example/":                   errNoAddress,
		"http://user:secret@hooks.example/":            errNoAddress,
		"http://hooks.example@127.0.0.1:9000/":         errNoAddress,
		"http://hooks.example/#@127.0.0.1":             errNoAddress,
		"http://hooks.example:99999/":                  errNoAddress,
		"http://hooks.example/\r\nX: y":                errNoAddress,
		"http://hooks.example/" + string(rune(0x7f)):   errNoAddress,
		"http://hooks.example/" + longText(maxAddress): errNoAddress,
	} {
		if want == nil {
			if err := s.Check(address); err != nil {
				t.Errorf("%q: %v", address, err)
			}
			continue
		}
		list.Case(fmt.Sprintf("%.60q", address), func(t *testing.T) {
			if err := s.Check(address); err != want {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
	nobody, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := nobody.Check("http://hooks.example/"); err != errOff {
		t.Errorf("nothing is listed: %v", err)
	}
}

func longText(length int) string {
	text := make([]byte, length)
	for i := range text {
		text[i] = 'a'
	}
	return string(text)
}

// A listed name may lead to a public address (true). It may lead to another address (false) only if that is listed too.
func TestPublicAddresses(t *testing.T) {
	var nothing allowList
	for text, public := range map[string]bool{
		"93.184.215.14": true, "1.1.1.1": true, "172.15.0.1": true, "172.32.0.1": true, "100.63.0.1": true, "100.128.0.1": true,
		"2606:4700::1111": true, "2a00:1450::1": true, "::ffff:1.1.1.1": true,
		"0.0.0.0": false, "0.1.2.3": false, "10.1.2.3": false, "100.64.0.1": false, "127.0.0.1": false, "127.255.255.255": false,
		"169.254.169.254": false, "172.16.0.1": false, "172.31.255.255": false, "192.0.0.1": false, "192.0.2.1": false, "192.168.1.1": false,
		"198.18.0.1": false, "198.51.100.1": false, "203.0.113.1": false, "224.0.0.1": false, "239.1.1.1": false, "240.0.0.1": false,
		"255.255.255.255": false, "::": false, "::1": false, "::127.0.0.1": false, "::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false,
		"64:ff9b::7f00:1": false, "64:ff9b:1::1": false, "100::1": false, "2001::1": false, "2001:db8::1": false, "2002:7f00:1::": false,
		"3fff::1": false, "5f00::1": false, "fc00::1": false, "fd12:3456::1": false, "fe80::1": false, "fe80::1%eth0": false, "fec0::1": false, "ff02::1": false,
	} {
		if got := nothing.hasAddress(netip.MustParseAddr(text), 80); got != public {
			t.Errorf("%s: %v, want %v", text, got, public)
		}
	}
	list, err := parseAllow([]string{"hooks.internal:8080", "10.1.0.0/16", "127.0.0.1:9000", "fd00::/8"})
	if err != nil {
		t.Fatal(err)
	}
	for text, fine := range map[string]bool{
		"10.1.2.3:8080": true, "[::ffff:10.1.2.3]:8080": true, "127.0.0.1:9000": true, "[fd00::7]:1": true,
		"10.2.0.1:8080": false, "127.0.0.1:8080": false, "127.0.0.2:9000": false, "[::1]:9000": false, "169.254.169.254:80": false,
	} {
		at := netip.MustParseAddrPort(text)
		if got := list.hasAddress(at.Addr(), at.Port()); got != fine {
			t.Errorf("%s: %v, want %v", text, got, fine)
		}
	}
}
