package commtest

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Port is a TCP port of the loopback interface that was free a moment ago and that the system gives to nobody by itself: it lies
// below those of outgoing connections and of listeners that ask for any (from 32768 on, ip(7)). One that the system chose could be
// another's before the ranks listen on it. It draws at random, since tests run beside one another.
func Port() (int, error) {
	var last error
	for range 100 {
		port := 20000 + rand.IntN(12000)
		ln, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			return port, ln.Close()
		}
		last = err
	}
	return 0, last
}
