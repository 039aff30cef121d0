// Package load is the load generator: a closed loop over keep-alive
// connections that knows the one right answer to every request and compares
// all of it, status, content type and body, to the byte.
//
// It speaks HTTP/1.1 by hand over net.Conn, because it shares the machine with
// what it measures: requests are built beforehand and sent in one write, and an
// answer is compared where the read buffer holds it, without being copied.
//
//	Run ─┬─ connection 0: exchange 0, exchange 1, exchange 0, … ─┐
//	     ├─ connection 1: …                                      ├─► Tally
//	     └─ connection c: …                                      ┘
//
// It is no general client: no redirects, no compression, no pipelining.
package load
