package commtest

import (
	"net"
	"os"
	"syscall"
)

// Rendezvous is a listening socket on which rank 0 of a test's job collects the others. A port that was
// only looked up and is bound again by rank 0 could be taken in between: by another process, or by a child of this one that has
// been forked and still holds the first socket until its exec.
type Rendezvous struct {
	Port int      // MASTER_PORT
	File *os.File // the socket, for a child's ExtraFiles (then GTC_LISTEN_FD=3); the caller closes it
}

// Listen opens a socket on a port that the system chooses, of the interface with the address host, or of all for "".
func Listen(host string) (*Rendezvous, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	defer ln.Close() // File is a duplicate
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	return &Rendezvous{Port: ln.Addr().(*net.TCPAddr).Port, File: f}, nil
}

// FD is a descriptor of the socket for comm.Options.ListenFD of a rank in this process, which closes it. It closes File.
func (r *Rendezvous) FD() (int, error) {
	defer r.File.Close()
	syscall.ForkLock.RLock() // no child may inherit it
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Dup(int(r.File.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	return fd, err
}
