package item

// Citation is a source of a text that a model wrote.
type Citation struct {
	Kind CitationKind `json:"kind"`
	Part int          `json:"part,omitempty"` // the index of the text among the Parts of its item

	URL         string `json:"url,omitempty"`
	Title       string `json:"title,omitempty"` // of the page at URL
	FileID      string `json:"file_id,omitempty"`
	Filename    string `json:"filename,omitempty"`
	ContainerID string `json:"container_id,omitempty"` // where the file is

	// Start and End are the first and the last character of the text that cites the source,
	// as the provider counts them.
	Start int64 `json:"start,omitempty"`
	End   int64 `json:"end,omitempty"`

	Index int64 `json:"index,omitempty"` // of a File or FilePath: where in the text, as the provider counts it
}

// CitationKind says what a [Citation] refers to.
type CitationKind string

// The kinds of citations. They have these fields beside Kind and Part.
const (
	CitesURL           CitationKind = "url"            // URL, Title, Start, End
	CitesFile          CitationKind = "file"           // FileID, Filename, Index
	CitesContainerFile CitationKind = "container_file" // ContainerID, FileID, Filename, Start, End
	CitesFilePath      CitationKind = "file_path"      // FileID, Index: a file that the model made
)
