package comm

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// protocolVersion changes with any change of what travels between ranks.
const protocolVersion = 2

// handshakeTime bounds how long a stranger may keep a connection undecided.
const handshakeTime = 10 * time.Second

// hello opens every connection. Plan, World and Version are compared by rank 0.
type hello struct {
	Magic   string
	Version int
	Kind    string // "control" or "data"
	Rank    int
	World   int
	Plan    string `json:",omitempty"`
	Host    string `json:",omitempty"` // equal for ranks that can share memory
	Addr    string `json:",omitempty"` // where the rank accepts data connections
	Session string `json:",omitempty"` // data: the job, as rank 0 named it
	Group   string `json:",omitempty"` // data: the group's id
	Chan    string `json:",omitempty"` // data: which of the pair's connections
	Nonce   []byte
}

const helloMagic = "gtc-comm"

// challenge is the server's answer to hello, proof the client's to that, and
// reply the server's proof or its refusal.
type (
	challenge struct {
		Nonce []byte
		Err   string `json:",omitempty"`
	}
	proof struct{ MAC []byte }
	reply struct {
		MAC []byte `json:",omitempty"`
		Err string `json:",omitempty"`
	}
)

// errRefused marks an answer of a peer that gave its reason; trying again
// would not help.
type errRefused struct{ reason string }

func (e *errRefused) Error() string { return e.reason }

// mac proves knowledge of token for one connection: both nonces and all that
// hello claims go in, so that nothing can be replayed or altered, and who
// proves it, so that nothing can be reflected.
func mac(token, who string, client, server, hello []byte) []byte {
	m := hmac.New(sha256.New, []byte(token))
	sum := sha256.Sum256(hello)
	for _, part := range [][]byte{[]byte(who), client, server, sum[:]} {
		var n [4]byte
		binary.LittleEndian.PutUint32(n[:], uint32(len(part)))
		m.Write(n[:])
		m.Write(part)
	}
	return m.Sum(nil)
}

func nonce() ([]byte, error) {
	b := make([]byte, 32)
	_, err := rand.Read(b)
	return b, err
}

// greet is the dialing side of a handshake.
func greet(conn net.Conn, token string, h hello) error {
	conn.SetDeadline(time.Now().Add(handshakeTime))
	defer conn.SetDeadline(time.Time{})
	var err error
	if h.Nonce, err = nonce(); err != nil {
		return err
	}
	h.Magic, h.Version = helloMagic, protocolVersion
	raw, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := writeFrame(conn, raw); err != nil {
		return err
	}
	var ch challenge
	if err := readJSON(conn, &ch); err != nil {
		return err
	}
	if ch.Err != "" {
		return &errRefused{ch.Err}
	}
	if err := writeJSON(conn, proof{mac(token, "client", h.Nonce, ch.Nonce, raw)}); err != nil {
		return err
	}
	var re reply
	if err := readJSON(conn, &re); err != nil {
		return err
	}
	if re.Err != "" {
		return &errRefused{re.Err}
	}
	if !hmac.Equal(re.MAC, mac(token, "server", h.Nonce, ch.Nonce, raw)) {
		return &errRefused{fmt.Sprintf("%s does not know this job's token: is GTC_TOKEN the same on every rank?", conn.RemoteAddr())}
	}
	return nil
}

// welcome is the accepting side. admit says why a peer with a good token is
// refused all the same, or nil.
func welcome(conn net.Conn, token string, admit func(hello) error) (hello, error) {
	conn.SetDeadline(time.Now().Add(handshakeTime))
	defer conn.SetDeadline(time.Time{})
	var h hello
	raw, err := readFrame(conn, nil)
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(raw, &h); err != nil || h.Magic != helloMagic || len(h.Nonce) != 32 {
		return h, errors.New("the other side is not a rank of a gtc program")
	}
	if h.Version != protocolVersion {
		msg := fmt.Sprintf("rank %d speaks protocol version %d, but the other ranks speak version %d: compile all ranks with the same gtc", h.Rank, h.Version, protocolVersion)
		writeJSON(conn, challenge{Err: msg})
		return h, errors.New(msg) // not proved to be a rank of this job
	}
	mine, err := nonce()
	if err != nil {
		return h, err
	}
	if err := writeJSON(conn, challenge{Nonce: mine}); err != nil {
		return h, err
	}
	var pr proof
	if err := readJSON(conn, &pr); err != nil {
		return h, err
	}
	if !hmac.Equal(pr.MAC, mac(token, "client", h.Nonce, mine, raw)) {
		writeJSON(conn, reply{Err: "wrong token: is GTC_TOKEN the same on every rank?"})
		return h, errors.New("wrong token")
	}
	if err := admit(h); err != nil {
		writeJSON(conn, reply{Err: err.Error()})
		return h, &errRefused{err.Error()}
	}
	return h, writeJSON(conn, reply{MAC: mac(token, "server", h.Nonce, mine, raw)})
}

// maxFrame bounds what a peer can make this rank allocate.
const maxFrame = 4 << 20

func writeFrame(w io.Writer, b []byte) error {
	buf := make([]byte, 4+len(b))
	binary.LittleEndian.PutUint32(buf, uint32(len(b)))
	copy(buf[4:], b)
	_, err := w.Write(buf)
	return err
}

// readFrame reads one frame, into buf where it fits. Memory grows with what
// has arrived, not with what the peer claims.
func readFrame(r io.Reader, buf []byte) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	size := int(binary.LittleEndian.Uint32(n[:]))
	if size > maxFrame {
		return nil, fmt.Errorf("a message of %d bytes is longer than the %d allowed", size, maxFrame)
	}
	buf = buf[:0]
	for len(buf) < size {
		at := len(buf)
		step := min(size-at, 64<<10)
		buf = append(buf, make([]byte, step)...)
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return nil, err
		}
	}
	return buf, nil
}

func writeJSON(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeFrame(w, b)
}

func readJSON(r io.Reader, v any) error {
	b, err := readFrame(r, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
