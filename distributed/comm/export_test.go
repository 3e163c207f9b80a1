package comm

import (
	"fmt"
	"net"
	"time"
)

// What the tests, which are outside the package because commtest imports it,
// see of its inside.

// RecentSize is the package's own.
const RecentSize = recentSize

var (
	Fill      = (*Options).fill
	Env       = fromEnv
	FirstHost = firstHost
	DialFor   = dialFor
)

// BackendName is the type of c's backend, such as "*comm.tcp".
func BackendName(c Communicator) string { return fmt.Sprintf("%T", c.(*group).be) }

// Choose is the algorithm of an all_reduce over TCP.
func Choose(wish string, n, size int, dt DType) string {
	w := &world{opt: Options{Algorithm: wish}}
	return w.choose(&call{op: OpAllReduce, dt: dt, dst: make([]byte, size)}, n).String()
}

// Handshake joins the two ends of a connection as a rank and its peer do.
func Handshake(client, server net.Conn, token string) error {
	errs := make(chan error, 1)
	go func() {
		_, err := welcome(server, token, func(hello) error { return nil })
		errs <- err
	}()
	if err := greet(client, token, hello{Kind: "data", Rank: 1}); err != nil {
		return err
	}
	select {
	case err := <-errs:
		return err
	case <-time.After(5 * time.Second):
		return fmt.Errorf("no handshake within 5 s")
	}
}
