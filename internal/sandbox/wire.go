package sandbox

// Order is one line on the standard input of an interpreter: JSON, and a line feed.
type Order struct {
	Code string `json:"code"`
	// Mark is a random text. The interpreter writes it to standard output after the output of the code,
	// and to standard error, followed by the JSON of a Reply and a line feed.
	Mark string `json:"mark"`
	// Shown is a random text that begins the names of the files for images that the code shows: of Python, in its working
	// directory, "-1.png" to "-10.png". The gateway gives them their final names. An interpreter without such images ignores it.
	Shown string `json:"shown"`
}

// Reply is what an interpreter says when code has ended. Code can forge it, for its own session.
type Reply struct {
	Exit   int    `json:"exit"`   // 0 = no error
	Result string `json:"result"` // value of the last expression; "" = none
	// Ended says why the interpreter cannot run more code; "" = it can.
	Ended string `json:"ended,omitempty"`
	// Notes say which images were not drawn, and why.
	Notes []string `json:"notes,omitempty"`
}

// Limits of the protocol.
const (
	MaxCode   = 256 << 10 // bytes of the code of a call
	maxReply  = 512 << 10 // bytes of the JSON of a Reply, in which a byte of the result can take 6
	MaxResult = 64 << 10  // bytes of Reply.Result, after which an interpreter truncates it
	maxOutput = 512 << 10 // bytes that are kept of each of the two outputs of a call
	maxShown  = 10        // images that the code of a call shows and that become files
	maxNotes  = maxShown  // of a Reply
	maxNote   = 2000      // bytes of one of Reply.Notes
)

// Launch tells a child how to confine a program of the host before it becomes that program. The child's
// working directory is the one for the files of the session.
type Launch struct {
	// UID is the user and group that the program runs as, who owns nothing else. 0 = the gateway's own,
	// which is not root.
	UID int `json:"uid,omitempty"`
	// Command is the program with its arguments.
	Command []string `json:"command"`
	// Read lists directories that the program may read.
	Read []string `json:"read,omitempty"`
	// Bwrap is the path of bubblewrap; only for the driver Bwrap.
	Bwrap string `json:"bwrap,omitempty"`
}
