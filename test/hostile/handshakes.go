package hostile

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
)

// Handshakes returns what a stranger may send first to a port with TLS, by name. None of
// it leads to a stream: the port ends the connection, at the latest when its time for a
// handshake is over. The texts are bytes.
func Handshakes() (map[string]string, error) {
	hello, err := clientHello(&tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	early, err := clientHello(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, ServerName: "n1"})
	if err != nil {
		return nil, err
	}
	cut := func(change func(b []byte)) string {
		b := bytes.Clone(hello)
		change(b)
		return string(b)
	}
	all := map[string]string{
		"garbage": "\x00\x01\x02\x03\x04\x05\x06\x07", "SSH": "SSH-2.0-OpenSSH_9\r\n", "HTTP": "OPTIONS * HTTP/1.1\r\nHost: n1\r\n\r\n", "SMTP": "EHLO n1\r\n", "SOCKS": "\x05\x01\x00",
		"HTTP/2 in the clear": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "a proxy's header": "PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", "a hello of SSL 2": "\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10" + strings.Repeat("\x01", 35),
		"an oversized record": "\x16\x03\x01\xff\xff" + strings.Repeat("a", 1<<16-1), "an empty record": "\x16\x03\x01\x00\x00", "10,000 empty records": strings.Repeat("\x16\x03\x01\x00\x00", 10_000),
		"half a record": string(hello[:len(hello)/2]), "one byte of a hello": string(hello[:6]), "a record without content": string(hello[:5]),
		"an oversized hello":                           oversized(),
		"a hello that lies short":                      cut(func(b []byte) { b[8] -= 40 }),
		"a hello that lies long":                       cut(func(b []byte) { b[6] = 1 }),
		"extensions that lie":                          cut(func(b []byte) { extensionsOf(b)[0] ^= 0x7f }),
		"no cipher in common":                          cut(func(b []byte) { clear(b[78 : 78+int(binary.BigEndian.Uint16(b[76:]))]) }),
		"a session id of 255 bytes":                    cut(func(b []byte) { b[43] = 255 }),
		"version 0.0 of the protocol":                  cut(func(b []byte) { b[9], b[10] = 0, 0 }),
		"a server's hello":                             cut(func(b []byte) { b[5] = 2 }),
		"an end before the beginning":                  cut(func(b []byte) { b[5] = 20 }),
		"an unknown handshake":                         cut(func(b []byte) { b[5] = 99 }),
		"two hellos":                                   string(hello) + string(hello),
		"a hello, then garbage":                        string(hello) + strings.Repeat("\x17\x03\x03\x00\x20"+strings.Repeat("x", 32), 50),
		"a hello, then a change of cipher and garbage": string(hello) + "\x14\x03\x03\x00\x01\x01" + "\x17\x03\x03\x00\x20" + strings.Repeat("x", 32),
		"early data":                                   earlyData(early),
		"an alert first":                               "\x15\x03\x03\x00\x02\x02\x28", "a warning first": "\x15\x03\x03\x00\x02\x01\x00", "1,000 warnings": strings.Repeat("\x15\x03\x03\x00\x02\x01\x5a", 1000),
		"a change of cipher first": "\x14\x03\x03\x00\x01\x01", "data first": "\x17\x03\x03\x00\x05hello", "a heartbeat": "\x18\x03\x02\x00\x03\x01\x40\x00", "an unknown record": "\x63\x03\x03\x00\x01\x00",
	}
	return all, nil
}

// clientHello returns the first record that a client of Go sends.
func clientHello(config *tls.Config) ([]byte, error) {
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(near, config).Handshake() // it ends with the pipe
	}()
	defer func() { _, _ = near.Close(), far.Close(); <-done }()
	head := make([]byte, 5)
	if _, err := io.ReadFull(far, head); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(far, body); err != nil {
		return nil, err
	}
	if record := slices.Concat(head, body); record[0] == 0x16 && record[5] == 1 && record[43] == 32 && len(record) > 100 {
		return record, nil
	}
	return nil, fmt.Errorf("a client's hello of another form: % x", body)
}

// extensionsOf returns the length of a hello's extensions, two bytes, and what follows.
func extensionsOf(hello []byte) []byte {
	ciphers := int(binary.BigEndian.Uint16(hello[76:]))
	return hello[78+ciphers+2:] // behind one method of compression
}

// earlyData is a hello that announces data before the end of the handshake, which it sends.
func earlyData(hello []byte) string {
	extended := append(bytes.Clone(hello), 0, 0x2a, 0, 0)
	for _, length := range [][]byte{extended[3:], extended[7:], extensionsOf(extended)} { // of the record, of the hello, of its extensions
		binary.BigEndian.PutUint16(length, binary.BigEndian.Uint16(length)+4)
	}
	return string(extended) + "\x17\x03\x03\x01\x00" + strings.Repeat("x", 256)
}

// oversized is a hello of 1 MiB, in records of 16 KiB.
func oversized() string {
	const size, record = 1 << 20, 1 << 14
	content := "\x01\x10\x00\x00" + strings.Repeat("\x03", size)
	var all strings.Builder
	for len(content) > 0 {
		n := min(len(content), record)
		all.WriteString("\x16\x03\x01")
		all.Write(binary.BigEndian.AppendUint16(nil, uint16(n)))
		all.WriteString(content[:n])
		content = content[n:]
	}
	return all.String()
}
